// Qwen3, Qwen2.5, Hermes: <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>, after reasoning in <think>.
#include "text/tagged_json_reader.h"
#include "text/tagged_parser.h"
#include "text/tool_format.h"

namespace zinc {
namespace {

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  TaggedSyntax syntax{.thinking = kThinkTags, .call_open = {kTaggedCallOpen}, .call_close = kTaggedCallClose};
  return std::make_unique<TaggedParser>(std::move(syntax), context, std::make_unique<TaggedJsonReader>());
}

}  // namespace

extern const ToolFormat k_tool_format_qwen3 = {
    .name = "qwen3",
    .template_has = {"<tool_call>", "arguments"},
    .template_lacks = {"<function=", "<arg_key>", "tool_sep"},
    .architecture = "qwen3",
    .thinking = kThinkTags,
    .call_open = kTaggedCallOpen,
    .calls = kTaggedJsonCalls,
    .make_parser = make_parser,
};

}  // namespace zinc
