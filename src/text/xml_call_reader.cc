#include "text/xml_call_reader.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace zinc {
namespace {

constexpr std::string_view kCall = "<tool_call>", kCallEnd = "</tool_call>",
                           kFunction = "<function=", kFunctionEnd = "</function>",
                           kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxHeldBytes = 64;  // longest end of a value: two tags and white space between

enum class Match : uint8_t { none, partial, complete };

// Matches `text` against the end of a value: an optional newline, </parameter>, white space and the next tag, `tag`.
Match match_value_end(std::string_view text, std::string_view& tag) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (kParameterEnd.starts_with(text)) return Match::partial;
  if (!text.starts_with(kParameterEnd)) return Match::none;
  text.remove_prefix(kParameterEnd.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \n\r\t"), text.size()));
  for (const std::string_view next : {kParameter, kFunctionEnd, kCallEnd}) {
    tag = next;
    if (text == next) return Match::complete;
    if (next.starts_with(text)) return Match::partial;
  }
  return Match::none;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n\r\t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \n\r\t") - begin + 1);
}

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  return std::equal(text.begin(), text.end(), lower.begin(), lower.end(),
                    [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b; });
}

// `text` as JSON of one of `types`; empty if it does not match. Booleans and null may be in Python syntax.
std::string typed_value(std::string_view text, ParameterTypes types) {
  const auto allows = [types](ParameterTypes type) { return types == 0 || (types & type) != 0; };
  for (const std::string_view word : {"true", "false"}) {
    if (allows(kBooleanType) && equals_ignoring_case(text, word)) return std::string(word);
  }
  if (allows(kNullType) && (equals_ignoring_case(text, "null") || text == "None")) return "null";
  const Result<json::value> parsed = parse_json(text);
  if (!parsed.ok()) return {};
  const json::value& value = parsed.value();
  const bool fits = (value.is_number() && allows(kNumberType)) || (value.is_object() && allows(kObjectType)) ||
                    (value.is_array() && allows(kArrayType));
  return fits ? std::string(text) : std::string();
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  append_json_escaped(out, text);
  return out + '"';
}

}  // namespace

TaggedSyntax xml_call_syntax() { return {.call_open = {kCall, kFunction}, .call_close = kCallEnd}; }

void XmlCallReader::begin(std::string_view marker, bool) {
  *this = XmlCallReader();
  is_wrapped_ = marker == kCall;
  tag_.expect(kFunction);
  if (!is_wrapped_) state_ = State::function_name;
}

XmlCallReader::Step XmlCallReader::push(char c, MessageWriter& writer) {
  switch (state_) {
    case State::tag:
      return tag_byte(c, writer);
    case State::function_name:
    case State::parameter_name:
      return name_byte(c, writer);
    case State::value_start:
      return value_start_byte(c, writer);
    case State::text_value:
      return text_byte(c, writer);
    case State::json_value:
      return json_byte(c, writer);
    case State::after_json:
      break;
  }
  const LiteralMatcher::Step step = tag_.push(c);
  if (step == LiteralMatcher::Step::failed) return Step::failed;
  if (step == LiteralMatcher::Step::more) return Step::more;
  tag_.expect(kParameter, kFunctionEnd, kCallEnd);
  return go(State::tag);
}

XmlCallReader::Step XmlCallReader::tag_byte(char c, MessageWriter& writer) {
  const LiteralMatcher::Step step = tag_.push(c);
  if (step == LiteralMatcher::Step::failed) return Step::failed;
  return step == LiteralMatcher::Step::more ? Step::more : enter_tag(tag_.found(), writer);
}

XmlCallReader::Step XmlCallReader::enter_tag(std::string_view tag, MessageWriter& writer) {
  if (tag == kFunction) return go(State::function_name);
  if (tag == kParameter) {
    parameter_.clear();
    return go(State::parameter_name);
  }
  const bool is_call_end = tag == kCallEnd;
  if (!is_ended_) {
    if (!end_function(writer)) return Step::failed;
    if (is_call_end) writer.warn(WarningCode::missing_end, "a tool call has no </function>");
  }
  // Without an opening <tool_call>, </tool_call> may be missing too.
  if (is_call_end || !is_wrapped_) return Step::done;
  tag_.expect(kCallEnd);
  return go(State::tag);
}

XmlCallReader::Step XmlCallReader::name_byte(char c, MessageWriter& writer) {
  const bool is_function = state_ == State::function_name;
  std::string& name = is_function ? function_ : parameter_;
  if (c == '>' && !name.empty()) {
    if (!(is_function ? begin_function(writer) : begin_parameter(writer))) return Step::failed;
    return Step::more;
  }
  if (c == '>' || c == '<' || c == '\n' || name.size() >= kMaxNameBytes) return Step::failed;
  name += c;
  return Step::more;
}

bool XmlCallReader::begin_function(MessageWriter& writer) {
  if (!is_wrapped_ && !writer.tools().has_function(function_)) return false;
  writer.start_call(function_);
  writer.arguments("{");
  is_started_ = true;
  tag_.expect(kParameter, kFunctionEnd, kCallEnd);
  state_ = State::tag;
  return true;
}

bool XmlCallReader::begin_parameter(MessageWriter& writer) {
  const bool is_first = seen_.empty();
  if (!seen_.insert(parameter_).second) return false;
  types_ = writer.tools().types(function_, parameter_);
  streams_ = types_ == kStringType;
  if (!is_first) writer.arguments(",");
  writer.arguments(quoted(parameter_));
  writer.arguments(streams_ ? ":\"" : ":");
  value_.clear();
  held_.clear();
  is_fresh_ = true;
  state_ = State::value_start;
  return true;
}

// The line break after the opening tag is markup. The first non-space byte decides the state.
XmlCallReader::Step XmlCallReader::value_start_byte(char c, MessageWriter& writer) {
  if (std::exchange(is_fresh_, false) && c == '\n') return Step::more;
  const bool is_never_string = types_ != 0 && (types_ & kStringType) == 0;
  if (is_never_string && is_json_space(c)) {
    value_ += c;
    return Step::more;
  }
  const bool is_json = is_never_string && (c == '{' || c == '[');
  scanner_.reset();
  state_ = is_json ? State::json_value : State::text_value;
  return is_json ? json_byte(c, writer) : text_byte(c, writer);
}

XmlCallReader::Step XmlCallReader::text_byte(char c, MessageWriter& writer) {
  held_ += c;
  while (!held_.empty()) {
    std::string_view tag;
    const Match match = held_.size() > kMaxHeldBytes ? Match::none : match_value_end(held_, tag);
    if (match == Match::partial) return Step::more;
    if (match == Match::complete) {
      end_value(writer);
      return enter_tag(tag, writer);
    }
    const size_t n_plain = std::min(held_.find_first_of("\n<", 1), held_.size());
    write_value(std::string_view(held_).substr(0, n_plain), writer);
    held_.erase(0, n_plain);
  }
  return Step::more;
}

void XmlCallReader::write_value(std::string_view text, MessageWriter& writer) {
  if (!streams_) {
    value_ += text;
    return;
  }
  std::string escaped;
  append_json_escaped(escaped, text);
  writer.arguments(escaped);
}

void XmlCallReader::end_value(MessageWriter& writer) {
  held_.clear();
  if (streams_) {
    writer.arguments("\"");
    return;
  }
  const std::string typed = typed_value(trim(value_), types_);
  if (!typed.empty()) {
    writer.arguments(typed);
    return;
  }
  writer.arguments(quoted(value_));
  if (types_ == 0 || (types_ & kStringType) != 0) return;
  writer.warn(WarningCode::value_type, fmt::format("parameter '{}' of '{}' does not match the type in its schema; "
                                                   "passed on as a string",
                                                   parameter_, function_));
}

bool XmlCallReader::end_function(MessageWriter& writer) {
  writer.arguments("}");
  is_ended_ = writer.end_call();
  return is_ended_;
}

bool XmlCallReader::finish(MessageWriter& writer) {
  if (state_ == State::text_value) {
    // Output ended after a closing tag: the value is complete if the next tag has not begun.
    if (trim(held_) != kParameterEnd) return false;
    end_value(writer);
  } else if (state_ != State::tag || !is_started_) {
    return false;
  } else if (!is_ended_ && tag_.has_begun() && !tag_.found().starts_with("</")) {
    return false;  // another parameter has begun
  }
  if (!is_ended_ && !end_function(writer)) return false;
  writer.warn(WarningCode::missing_end, "the output ended before </tool_call>");
  return true;
}

XmlCallReader::Step XmlCallReader::json_byte(char c, MessageWriter& writer) {
  const bool in_string = scanner_.in_string();
  const JsonScanner::Step step = scanner_.push(c);
  if (step == JsonScanner::Step::error) return Step::failed;
  std::string text;
  append_scanned(text, c, in_string);
  writer.arguments(text);
  if (step == JsonScanner::Step::more) return Step::more;
  tag_.expect(kParameterEnd);
  return go(State::after_json);
}

}  // namespace zinc
