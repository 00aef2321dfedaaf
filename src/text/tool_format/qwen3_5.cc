// Qwen3.5: calls as Qwen3-Coder writes them, after reasoning opened by the prompt.
#include "text/tool_format.h"
#include "text/xml_call_reader.h"

namespace zinc {
namespace {

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  TaggedSyntax syntax = xml_call_syntax();
  syntax.thinking = kThinkTags;
  return std::make_unique<TaggedParser>(std::move(syntax), context, std::make_unique<XmlCallReader>());
}

}  // namespace

extern const ToolFormat k_tool_format_qwen3_5 = {
    .name = "qwen3.5",
    .template_has = {"<function=", "<parameter=", "<think>"},
    .architecture = "qwen35",
    .thinking = kThinkTags,
    .reasoning_starts_open = true,
    .call_open = "<tool_call>",
    .calls = kXmlCalls,
    .make_parser = make_parser,
};

}  // namespace zinc
