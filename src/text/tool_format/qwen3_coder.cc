// Qwen3-Coder: <tool_call>\n<function=name>\n<parameter=key>\nvalue\n</parameter>\n</function>\n</tool_call>; no
// reasoning.
#include "text/tool_format.h"
#include "text/xml_call_reader.h"

namespace zinc {
namespace {

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  return std::make_unique<TaggedParser>(xml_call_syntax(), context, std::make_unique<XmlCallReader>());
}

}  // namespace

extern const ToolFormat k_tool_format_qwen3_coder = {
    .name = "qwen3-coder",
    .template_has = {"<tool_call>", "<function=", "<parameter="},
    .template_lacks = {"<think>"},
    .call_open = "<tool_call>",
    .calls = kXmlCalls,
    .make_parser = make_parser,
};

}  // namespace zinc
