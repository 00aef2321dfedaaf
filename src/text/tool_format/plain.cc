// Templates without a known call syntax: tools are described by a generic prompt (text/generic_tools.h), and calls are
// written as Qwen3 does. Reasoning in <think> tags is recognized, as many fine-tunes write it.
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

extern const ToolFormat k_tool_format_plain = {
    .name = "plain",
    .thinking = kThinkTags,
    .call_open = kTaggedCallOpen,
    .calls = kTaggedJsonCalls,
    .make_parser = make_parser,
};

}  // namespace zinc
