// DeepSeek-R1 and its distillations: a thought that the prompt has opened, and calls as a name and a JSON code block
// between <｜tool▁call▁begin｜> and <｜tool▁call▁end｜>, the list of them between marks of its own.
#include "text/json_call_reader.h"
#include "text/marker_search.h"
#include "text/tagged_parser.h"
#include "text/tool_format.h"

namespace zinc {
namespace {

constexpr std::string_view kListBegin = "<｜tool▁calls▁begin｜>", kListEnd = "<｜tool▁calls▁end｜>",
                           kCallBegin = "<｜tool▁call▁begin｜>", kCallEnd = "<｜tool▁call▁end｜>",
                           kSeparator = "<｜tool▁sep｜>", kFence = "```";
constexpr size_t kMaxNameBytes = 512;

class CodeBlockReader : public CallReader {
 public:
  void begin(std::string_view, bool) override { expect(At::call_begin, kCallBegin); }

  Step push(char c, MessageWriter& writer) override {
    if (at_ == At::name) return name_byte(c);
    if (at_ == At::arguments) {
      const Step step = arguments_.push(c, writer);
      return step == Step::done ? expect(At::fence_end, kFence) : step;
    }
    const LiteralMatch::Step step = literal_.push(c);
    if (step == LiteralMatch::Step::more) return Step::more;
    return step == LiteralMatch::Step::done ? next() : Step::failed;
  }

  bool finish(MessageWriter& writer) override {
    if (at_ != At::fence_end && at_ != At::call_end && at_ != At::after_call) return false;
    writer.warn(WarningCode::missing_end, "the output ended before the closing mark of the tool calls");
    return true;
  }

 private:
  enum class At : uint8_t { call_begin, type, separator, name, fence, arguments, fence_end, call_end, after_call };

  Step expect(At at, std::string_view a, std::string_view b = {}) {
    at_ = at;
    literal_.expect(a, b);
    return Step::more;
  }

  Step next() {
    switch (at_) {
      case At::call_begin:
        return expect(At::type, "function");
      case At::type:
        name_.clear();
        return expect(At::separator, kSeparator);
      case At::separator:
        return expect(At::name, {});
      case At::fence:
        arguments_.begin(name_);
        return expect(At::arguments, {});
      case At::fence_end:
        return expect(At::call_end, kCallEnd);
      case At::call_end:
        return expect(At::after_call, kListEnd, kCallBegin);
      default:
        break;
    }
    return literal_.found() == kListEnd ? Step::done : expect(At::type, "function");
  }

  Step name_byte(char c) {
    if (c == '\n' && !name_.empty()) return expect(At::fence, "```json");
    if (is_json_space(c) || c == '<' || c == '`' || name_.size() >= kMaxNameBytes) return Step::failed;
    name_ += c;
    return Step::more;
  }

  At at_ = At::call_begin;
  LiteralMatch literal_;
  std::string name_;
  JsonArgumentsReader arguments_;
};

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  TaggedSyntax syntax{.thinking = kThinkTags, .call_open = {kListBegin}, .call_close = kListEnd};
  return std::make_unique<TaggedParser>(std::move(syntax), context, std::make_unique<CodeBlockReader>());
}

}  // namespace

extern const ToolFormat k_tool_format_deepseek_r1 = {
    .name = "deepseek-r1-distill",
    .template_has = {kListBegin, kSeparator, "```json"},
    .thinking = kThinkTags,
    .reasoning_starts_open = true,
    .call_open = kListBegin,
    .make_parser = make_parser,
};

}  // namespace zinc
