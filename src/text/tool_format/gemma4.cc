// Gemma 4: <|tool_call>call:name{key:<|"|>text<|"|>,n:1}<tool_call|> with bare keys and strings in special quotes,
// converted to JSON while streaming. Reasoning is <|channel>thought\n...<channel|>.
#include <algorithm>

#include "text/json_scanner.h"
#include "text/marker_search.h"
#include "text/tagged_parser.h"
#include "text/tool_format.h"

namespace zinc {
namespace {

constexpr std::string_view kOpen = "<|tool_call>", kClose = "<tool_call|>", kQuote = "<|\"|>";
constexpr ThinkingMarkers kThinking = {.open = "<|channel>thought", .close = "<channel|>", .before_answer = ""};
constexpr size_t kMaxNameBytes = 512;

class GemmaCallReader : public CallReader {
 public:
  void begin(std::string_view, bool) override {
    *this = GemmaCallReader();
    literal_.expect("call:");
  }

  Step push(char c, MessageWriter& writer) override {
    switch (state_) {
      case State::name:
        return name_byte(c, writer);
      case State::arguments:
        return arguments_byte(c, writer);
      case State::key:
        return key_byte(c, writer);
      case State::text:
        return text_byte(c, writer);
      default:
        break;
    }
    const LiteralMatcher::Step step = literal_.push(c);
    if (step == LiteralMatcher::Step::failed) return Step::failed;
    if (step == LiteralMatcher::Step::more) return Step::more;
    return state_ == State::close ? Step::done : go(State::name);
  }

  bool finish(MessageWriter& writer) override {
    if (state_ != State::close) return false;
    writer.warn(WarningCode::missing_end, "the output ended before <tool_call|>");
    return true;
  }

 private:
  enum class State : uint8_t { head, name, arguments, key, text, close };

  Step go(State state) {
    state_ = state;
    return Step::more;
  }

  Step name_byte(char c, MessageWriter& writer) {
    if (c == '{' && !name_.empty()) {
      writer.start_call(name_);
      state_ = State::arguments;
      return arguments_byte(c, writer);
    }
    if (is_json_space(c) || c == '<' || c == '{' || name_.size() >= kMaxNameBytes) return Step::failed;
    name_ += c;
    return Step::more;
  }

  // Between strings and bare keys the text is JSON.
  Step arguments_byte(char c, MessageWriter& writer) {
    if (!quote_.empty() || (c == '<' && !scanner_.in_string())) return quote_byte(c, writer);
    const bool starts_key = scanner_.expects_key() && c != '}' && c != '"' && !is_json_space(c);
    if (starts_key) {
      key_.clear();
      state_ = State::key;
      return key_byte(c, writer);
    }
    const bool in_string = scanner_.in_string();
    const JsonScanner::Step step = scanner_.push(c);
    if (step == JsonScanner::Step::error) return Step::failed;
    std::string text;
    append_scanned(text, c, in_string);
    writer.arguments(text);
    if (step == JsonScanner::Step::more) return Step::more;
    if (!writer.end_call()) return Step::failed;
    literal_.expect(kClose);
    return go(State::close);
  }

  Step quote_byte(char c, MessageWriter& writer) {
    quote_ += c;
    if (!kQuote.starts_with(quote_)) return Step::failed;
    if (quote_ != kQuote) return Step::more;
    quote_.clear();
    if (scanner_.push('"') == JsonScanner::Step::error) return Step::failed;
    writer.arguments("\"");
    return go(State::text);
  }

  Step key_byte(char c, MessageWriter& writer) {
    if (c == ':' && !key_.empty()) {
      std::string json = "\"";
      append_json_escaped(json, key_);
      json += "\":";
      for (const char j : json) {
        if (scanner_.push(j) == JsonScanner::Step::error) return Step::failed;
      }
      writer.arguments(json);
      return go(State::arguments);
    }
    const bool is_bracket = std::string_view("{}[],<\"\n").find(c) != std::string_view::npos;
    if (is_bracket || key_.size() >= kMaxNameBytes) return Step::failed;
    key_ += c;
    return Step::more;
  }

  Step text_byte(char c, MessageWriter& writer) {
    held_ += c;
    if (held_ == kQuote) {
      held_.clear();
      if (scanner_.push('"') == JsonScanner::Step::error) return Step::failed;
      writer.arguments("\"");
      return go(State::arguments);
    }
    while (!held_.empty() && !kQuote.starts_with(held_)) {
      const size_t n_plain = std::min(held_.find('<', 1), held_.size());
      std::string escaped;
      append_json_escaped(escaped, std::string_view(held_).substr(0, n_plain));
      writer.arguments(escaped);
      held_.erase(0, n_plain);
    }
    return Step::more;
  }

  State state_ = State::head;
  LiteralMatcher literal_;
  JsonScanner scanner_;  // over the JSON emitted so far, without the inside of quoted strings
  std::string name_, key_;
  std::string quote_;  // partial opening <|"|>
  std::string held_;   // possible closing <|"|>
};

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  TaggedSyntax syntax{.thinking = kThinking,
                      .reasoning_anywhere = true,
                      .call_open = {kOpen},
                      .call_close = kClose,
                      // The model sometimes repeats the end of reasoning, or starts the result of its call.
                      .dropped = {kThinking.close, "<|tool_response>"}};
  return std::make_unique<TaggedParser>(std::move(syntax), context, std::make_unique<GemmaCallReader>());
}

}  // namespace

extern const ToolFormat k_tool_format_gemma4 = {
    .name = "gemma4",
    .template_has = {"<|tool_call>", "<tool_call|>"},
    .architecture = "gemma4",
    .thinking = kThinking,
    .call_open = kOpen,
    .calls = {.open = "<|tool_call>call:",
              .close = kClose,
              .arguments = CallSyntax::Arguments::raw_strings,
              .quote = kQuote},
    .make_parser = make_parser,
};

}  // namespace zinc
