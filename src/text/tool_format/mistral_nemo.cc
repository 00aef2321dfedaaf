// Mistral up to Small 3.1: [TOOL_CALLS][{"name": ..., "arguments": {...}, "id": "..."}, ...].
#include "text/json_call_reader.h"
#include "text/marker_search.h"
#include "text/tagged_parser.h"
#include "text/tool_format.h"

namespace zinc {
namespace {

class JsonListReader : public CallReader {
 public:
  void begin(std::string_view, bool) override {
    state_ = State::open;
    object_.begin({});
  }

  Step push(char c, MessageWriter& writer) override {
    if (state_ == State::element) {
      const Step step = object_.push(c, writer);
      if (step == Step::done) return go(State::between);
      return step;
    }
    if (is_json_space(c)) return Step::more;
    if (state_ == State::open) return c == '[' ? go(State::element) : Step::failed;
    if (c == ']') return Step::done;
    if (c != ',') return Step::failed;
    object_.begin({});
    return go(State::element);
  }

  bool finish(MessageWriter& writer) override {
    if (state_ != State::between && !object_.may_end()) return false;
    writer.warn(WarningCode::missing_end, "the list of tool calls was not closed");
    return true;
  }

 private:
  enum class State : uint8_t { open, element, between };
  Step go(State state) {
    state_ = state;
    return Step::more;
  }

  State state_ = State::open;
  JsonCallReader object_;
};

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  TaggedSyntax syntax{.call_open = {"[TOOL_CALLS]"}};
  return std::make_unique<TaggedParser>(std::move(syntax), context, std::make_unique<JsonListReader>());
}

}  // namespace

extern const ToolFormat k_tool_format_mistral_nemo = {
    .name = "mistral-nemo",
    .template_has = {"[TOOL_CALLS]"},
    .template_lacks = {"[ARGS]"},
    .call_open = "[TOOL_CALLS]",
    .calls = {.begin = "[TOOL_CALLS][",
              .open = "{\"name\": \"",
              .before_arguments = "\", \"arguments\": ",
              .close = "}",
              .separator = ", ",
              .end = "]"},
    .make_parser = make_parser,
};

}  // namespace zinc
