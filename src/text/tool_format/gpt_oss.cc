// gpt-oss (harmony): messages <|start|>role<|channel|>name<|message|>body<|end|>. The prompt ends after the first role.
// analysis is reasoning, commentary and final are content, a body with the recipient functions.NAME is a call.
#include <algorithm>
#include <optional>

#include "text/json_call_reader.h"
#include "text/marker_search.h"
#include "text/tool_format.h"

namespace zinc {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>", kEnd = "<|end|>",
                           kReturn = "<|return|>", kCall = "<|call|>", kConstrain = "<|constrain|>", kRecipient = "to=";
constexpr std::string_view kBodyEnds[] = {kEnd, kReturn, kCall, kStart};
constexpr std::string_view kHeaderStarts[] = {kStart, kChannel, kMessage, kRecipient};
constexpr std::string_view kStrayEnds[] = {kEnd, kReturn, kCall};
constexpr size_t kMaxHeaderBytes = 512;

struct Header {
  std::string_view channel;
  std::string_view recipient;  // empty: the user
};

bool is_any(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Parses the words between <|start|> and <|message|>. nullopt: unknown word.
std::optional<Header> read_header(std::string_view text) {
  Header header{};
  while (!text.empty()) {
    const std::string_view markers[] = {kStart, kChannel, kConstrain};
    const MarkerMatch hit = marker_at_start(text, markers);
    if (is_json_space(text[0]) || !hit.marker.empty()) {
      text.remove_prefix(hit.marker.empty() ? 1 : hit.marker.size());
      continue;
    }
    const std::string_view word = text.substr(0, std::min(text.find_first_of("< \n\r\t"), text.size()));
    if (word.empty()) return std::nullopt;  // unknown marker
    text.remove_prefix(word.size());
    if (is_any(word, {"analysis", "commentary", "final"})) {
      header.channel = word;
    } else if (word.starts_with(kRecipient) && header.recipient.empty()) {
      if (word != "to=assistant") header.recipient = word.substr(kRecipient.size());
    } else if (!is_any(word, {"assistant", "json", "code"})) {
      return std::nullopt;
    }
  }
  if (header.channel.empty()) return std::nullopt;
  return header;
}

class HarmonyParser : public OutputParser {
 public:
  explicit HarmonyParser(const ParserContext& context)
      : writer_(context.writer), state_(context.reasoning_open ? State::reasoning : State::between) {}

  void push(std::string_view text) override {
    pending_ += text;
    std::string_view rest = pending_;
    while (!rest.empty() && step(rest)) {
    }
    pending_.erase(0, pending_.size() - rest.size());
  }

  void finish() override {
    if (state_ == State::reasoning) {
      writer_.reasoning(pending_);
    } else if (state_ == State::call) {
      fail();
    } else if (state_ == State::header) {
      raw_ = pending_;
      fail();
    } else {
      if (!pending_.empty()) writer_.content(whitespace_);
      writer_.content(pending_);
    }
    pending_.clear();
  }

 private:
  enum class State : uint8_t { between, header, reasoning, content, call, malformed, stray };

  bool step(std::string_view& rest) {
    switch (state_) {
      case State::between:
        return between(rest);
      case State::header:
        return header(rest);
      case State::call:
        return call(rest);
      case State::stray:
        return stray(rest);
      default:
        return body(rest);
    }
  }

  // Between messages: white space and extra end markers are ignored; other text has no channel.
  bool between(std::string_view& rest) {
    const size_t n_space = std::min(rest.find_first_not_of(" \n\r\t"), rest.size());
    whitespace_ += rest.substr(0, n_space);
    rest.remove_prefix(n_space);
    if (rest.empty()) return false;
    const MarkerMatch end = marker_at_start(rest, kStrayEnds);
    const MarkerMatch start = marker_at_start(rest, kHeaderStarts);
    if (start.before == 0 && !start.marker.empty()) {
      state_ = State::header;
      return true;
    }
    if (end.before == 0 && !end.marker.empty()) {
      rest.remove_prefix(end.marker.size());
      return true;
    }
    if (start.before == 0 || end.before == 0) return false;
    writer_.warn(WarningCode::no_channel, "the model wrote text outside of any channel; it is in the content");
    writer_.content(whitespace_);
    whitespace_.clear();
    state_ = State::stray;
    return true;
  }

  bool stray(std::string_view& rest) {
    constexpr std::string_view kMarkers[] = {kStart, kChannel, kEnd, kReturn, kCall};
    const MarkerMatch hit = find_marker(rest, kMarkers);
    writer_.content(rest.substr(0, hit.before));
    rest.remove_prefix(hit.before);
    if (hit.marker.empty()) return false;
    state_ = State::between;
    return true;
  }

  bool header(std::string_view& rest) {
    const size_t end = rest.substr(0, kMaxHeaderBytes).find(kMessage);
    if (end == std::string_view::npos && rest.size() < kMaxHeaderBytes) return false;
    const size_t n_raw = end == std::string_view::npos ? kMaxHeaderBytes : end + kMessage.size();
    const std::optional<Header> header =
        end == std::string_view::npos ? std::nullopt : read_header(rest.substr(0, end));
    raw_ = rest.substr(0, n_raw);
    if (!header || !begin_body(*header)) fail();
    rest.remove_prefix(n_raw);
    return true;
  }

  bool begin_body(const Header& header) {
    if (header.recipient.empty()) {
      whitespace_.clear();
      state_ = header.channel == "analysis" ? State::reasoning : State::content;
      return true;
    }
    constexpr std::string_view kFunctions = "functions.";
    std::string_view name = header.recipient;
    const bool is_function = name.starts_with(kFunctions);
    if (is_function) name.remove_prefix(kFunctions.size());
    if (name.empty() || writer_.tools().empty()) return false;
    if (!is_function && !writer_.tools().has_function(name)) return false;
    arguments_.begin(name);
    state_ = State::call;
    return true;
  }

  // A text body: content, reasoning, or the rest of a malformed message. <|start|> belongs to the next message.
  bool body(std::string_view& rest) {
    const MarkerMatch hit = find_marker(rest, kBodyEnds);
    const bool is_end = !hit.marker.empty() && hit.marker != kStart;
    const size_t n_end = is_end ? hit.marker.size() : 0;
    if (state_ == State::reasoning) {
      writer_.reasoning(rest.substr(0, hit.before));
    } else {
      writer_.content(rest.substr(0, state_ == State::malformed ? hit.before + n_end : hit.before));
    }
    rest.remove_prefix(hit.before + n_end);
    if (hit.marker.empty()) return false;
    state_ = State::between;
    return true;
  }

  bool call(std::string_view& rest) {
    while (!rest.empty()) {
      const CallReader::Step step = arguments_.push(rest[0], writer_);
      if (step == CallReader::Step::failed) {
        fail();
        return true;
      }
      raw_ += rest[0];
      rest.remove_prefix(1);
      if (step != CallReader::Step::done) continue;
      whitespace_.clear();
      state_ = State::between;
      return true;
    }
    return false;
  }

  void fail() {
    writer_.fail_call();
    writer_.warn(WarningCode::malformed_call, "a message is malformed; its text is in the content");
    writer_.content(whitespace_);
    writer_.content(raw_);
    whitespace_.clear();
    raw_.clear();
    state_ = State::malformed;
  }

  MessageWriter& writer_;
  State state_;
  std::string pending_;     // possible marker, or the incomplete header
  std::string whitespace_;  // before the message
  std::string raw_;         // text of the message, in case it is malformed
  JsonArgumentsReader arguments_;
};

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  return std::make_unique<HarmonyParser>(context);
}

}  // namespace

extern const ToolFormat k_tool_format_gpt_oss = {
    .name = "gpt-oss",
    .template_has = {"<|channel|>", "<|message|>", "<|start|>"},
    .architecture = "gpt-oss",
    .thinking = {.open = "<|channel|>analysis<|message|>",
                 .close = kEnd,
                 .before_answer = "<|start|>assistant<|channel|>final<|message|>",
                 .before_answer_or_call = "<|start|>assistant"},
    .efforts = {"low", "medium", "high"},
    .calls = {.open = "<|channel|>commentary to=functions.",
              .before_arguments = " <|constrain|>json<|message|>",
              .is_single = true},
    .channels = {.content_open = "<|channel|>final<|message|>",
                 .preamble_open = "<|channel|>commentary<|message|>",
                 .next_message = "<|start|>assistant"},
    .make_parser = make_parser,
};

}  // namespace zinc
