// DeepSeek-R1 and its distillations: reasoning opened by the prompt, and calls as a name and a JSON code block between
// <｜tool▁call▁begin｜> and <｜tool▁call▁end｜>, all inside list markers.
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
  void begin(std::string_view, bool) override { expect(State::call_begin, kCallBegin); }

  Step push(char c, MessageWriter& writer) override {
    if (state_ == State::name) return name_byte(c);
    if (state_ == State::arguments) {
      const Step step = arguments_.push(c, writer);
      return step == Step::done ? expect(State::fence_end, kFence) : step;
    }
    const LiteralMatcher::Step step = literal_.push(c);
    if (step == LiteralMatcher::Step::more) return Step::more;
    return step == LiteralMatcher::Step::done ? next() : Step::failed;
  }

  bool finish(MessageWriter& writer) override {
    if (state_ != State::fence_end && state_ != State::call_end && state_ != State::after_call) return false;
    writer.warn(WarningCode::missing_end, "the output ended before the closing marker of the tool calls");
    return true;
  }

 private:
  enum class State : uint8_t { call_begin, type, separator, name, fence, arguments, fence_end, call_end, after_call };

  Step expect(State state, std::string_view a, std::string_view b = {}) {
    state_ = state;
    literal_.expect(a, b);
    return Step::more;
  }

  Step next() {
    switch (state_) {
      case State::call_begin:
        return expect(State::type, "function");
      case State::type:
        name_.clear();
        return expect(State::separator, kSeparator);
      case State::separator:
        return expect(State::name, {});
      case State::fence:
        arguments_.begin(name_);
        return expect(State::arguments, {});
      case State::fence_end:
        return expect(State::call_end, kCallEnd);
      case State::call_end:
        return expect(State::after_call, kListEnd, kCallBegin);
      default:
        break;
    }
    return literal_.found() == kListEnd ? Step::done : expect(State::type, "function");
  }

  Step name_byte(char c) {
    if (c == '\n' && !name_.empty()) return expect(State::fence, "```json");
    if (is_json_space(c) || c == '<' || c == '`' || name_.size() >= kMaxNameBytes) return Step::failed;
    name_ += c;
    return Step::more;
  }

  State state_ = State::call_begin;
  LiteralMatcher literal_;
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
    .calls = {.begin = kListBegin,
              .open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
              .before_arguments = "\n```json\n",
              .close = "\n```<｜tool▁call▁end｜>",
              .separator = "\n",
              .end = kListEnd},
    .make_parser = make_parser,
};

}  // namespace zinc
