// Qwen3, Qwen2.5, Hermes: <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>, after reasoning in <think>.
#include "text/json_call_reader.h"
#include "text/marker_search.h"
#include "text/tagged_parser.h"
#include "text/tool_format.h"

namespace zinc {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";

class TaggedJsonReader : public CallReader {
 public:
  void begin(std::string_view, bool) override {
    object_.begin({});
    close_.expect(kClose);
    in_object_ = true;
  }

  Step push(char c, MessageWriter& writer) override {
    if (in_object_) {
      const Step step = object_.push(c, writer);
      if (step == Step::more) return step;
      in_object_ = false;
      if (step == Step::done) return Step::more;
      // The outer brace is missing, but the call is complete.
      if (c != '<' || !object_.may_end()) return Step::failed;
      writer.warn(WarningCode::missing_end, "the JSON object of a tool call was not closed");
    }
    const LiteralMatcher::Step step = close_.push(c);
    if (step == LiteralMatcher::Step::more) return Step::more;
    return step == LiteralMatcher::Step::done ? Step::done : Step::failed;
  }

  bool finish(MessageWriter& writer) override {
    if (in_object_ && !object_.may_end()) return false;
    writer.warn(WarningCode::missing_end, "the output ended before </tool_call>");
    return true;
  }

 private:
  JsonCallReader object_;
  LiteralMatcher close_;
  bool in_object_ = true;
};

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  TaggedSyntax syntax{.thinking = kThinkTags, .call_open = {kOpen}, .call_close = kClose};
  return std::make_unique<TaggedParser>(std::move(syntax), context, std::make_unique<TaggedJsonReader>());
}

}  // namespace

extern const ToolFormat k_tool_format_qwen3 = {
    .name = "qwen3",
    .template_has = {"<tool_call>", "arguments"},
    .template_lacks = {"<function=", "<arg_key>", "tool_sep"},
    .architecture = "qwen3",
    .thinking = kThinkTags,
    .call_open = kOpen,
    .make_parser = make_parser,
};

}  // namespace zinc
