// No tool calls; reasoning in <think> tags is recognized, as many fine-tunes write it.
#include "text/tagged_parser.h"
#include "text/tool_format.h"

namespace zinc {
namespace {

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  return std::make_unique<TaggedParser>(TaggedSyntax{.thinking = kThinkTags}, context, nullptr);
}

}  // namespace

extern const ToolFormat k_tool_format_plain = {
    .name = "plain",
    .thinking = kThinkTags,
    .make_parser = make_parser,
};

}  // namespace zinc
