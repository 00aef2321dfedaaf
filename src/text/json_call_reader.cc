#include "text/json_call_reader.h"

#include <optional>

#include "base/json.h"
#include "text/marker_search.h"

namespace zinc {
namespace {

// The decoded JSON string; nullopt if `text` is not a JSON string.
std::optional<std::string> string_value(std::string_view text) {
  const Result<json::value> parsed = parse_json(text);
  if (!parsed.ok() || !parsed.value().is_string()) return std::nullopt;
  return std::string(parsed.value().get_string());
}

}  // namespace

void JsonCallReader::begin(JsonCallRules rules) {
  *this = JsonCallReader();
  rules_ = rules;
}

JsonCallReader::Step JsonCallReader::push(char c, MessageWriter& writer) {
  if (state_ == State::in_key) return key_byte(c);
  if (state_ == State::in_value) return value_byte(c, writer);
  if (is_json_space(c)) return Step::more;
  switch (state_) {
    case State::open:
      return c == '{' ? go(State::first_key) : Step::failed;
    case State::first_key:
    case State::next_key:
      if (c == '}' && state_ == State::first_key) return end_object(writer) ? Step::done : Step::failed;
      key_.clear();
      scanner_.reset();
      state_ = State::in_key;
      return c == '"' ? key_byte(c) : Step::failed;
    case State::colon:
      return c == ':' ? go(State::value) : Step::failed;
    case State::value:
      value_.clear();
      scanner_.reset();
      state_ = State::in_value;
      return begin_value(c, writer) ? value_byte(c, writer) : Step::failed;
    default:
      return after_value(c, writer);
  }
}

JsonCallReader::Step JsonCallReader::key_byte(char c) {
  append_scanned(key_, c, scanner_.in_string());
  const JsonScanner::Step step = scanner_.push(c);
  if (step == JsonScanner::Step::error) return Step::failed;
  if (step == JsonScanner::Step::more) return Step::more;
  return begin_member() ? go(State::colon) : Step::failed;
}

JsonCallReader::Step JsonCallReader::value_byte(char c, MessageWriter& writer) {
  if (scanner_.number_ends_before(c)) {
    if (!end_member(writer)) return Step::failed;
    state_ = State::after_value;
    return is_json_space(c) ? Step::more : after_value(c, writer);
  }
  const bool in_string = scanner_.in_string();
  const JsonScanner::Step step = scanner_.push(c);
  if (step == JsonScanner::Step::error) return Step::failed;
  if (streams_) {
    std::string text;
    append_scanned(text, c, in_string);
    writer.arguments(text);
  } else {
    append_scanned(value_, c, in_string);
  }
  if (step == JsonScanner::Step::more) return Step::more;
  return end_member(writer) ? go(State::after_value) : Step::failed;
}

JsonCallReader::Step JsonCallReader::after_value(char c, MessageWriter& writer) {
  if (c == ',') return go(State::next_key);
  if (c != '}') return Step::failed;
  return end_object(writer) ? Step::done : Step::failed;
}

bool JsonCallReader::begin_member() {
  const std::optional<std::string> key = string_value(key_);
  if (!key) return false;
  const bool is_open = phase_ == Phase::unnamed;
  member_ = Member::unknown;
  if (*key == "id" && id_.empty()) {
    member_ = Member::id;
  } else if (*key == "type") {
    member_ = Member::type;
  } else if (*key == "name" && is_open) {
    member_ = Member::name;
    return name_.empty();
  } else if ((*key == "arguments" || *key == "parameters") && is_open) {
    member_ = Member::arguments;
    return !has_arguments_;
  }
  return member_ != Member::unknown || !rules_.strict || phase_ == Phase::ended;
}

// Chooses by the first byte whether the value is streamed or buffered.
bool JsonCallReader::begin_value(char c, MessageWriter& writer) {
  streams_ = false;
  if (member_ != Member::arguments) return member_ == Member::unknown || c == '"';
  if (c == '"') return !rules_.strict;  // some models write the arguments as a JSON string
  if (c != '{') return false;
  if (name_.empty()) return true;
  streams_ = true;
  return start_call(writer);
}

bool JsonCallReader::end_member(MessageWriter& writer) {
  switch (member_) {
    case Member::name:
      return end_name(writer);
    case Member::arguments:
      return end_arguments(writer);
    case Member::id: {
      const std::optional<std::string> id = string_value(value_);
      if (!id) return false;
      id_ = *id;
      if (phase_ != Phase::unnamed) writer.call_id(id_);
      return true;
    }
    case Member::type:
      if (value_ == "\"function\"") return true;
      break;
    case Member::unknown:
      break;
  }
  writer.warn(WarningCode::ignored_text, fmt::format("ignored field of a tool call: {}: {}", key_, value_));
  return true;
}

bool JsonCallReader::end_name(MessageWriter& writer) {
  name_ = string_value(value_).value_or("");
  if (name_.empty()) return false;
  if (!has_arguments_) return true;
  if (!start_call(writer)) return false;
  writer.arguments(buffered_arguments_);
  return end_call(writer);
}

bool JsonCallReader::end_arguments(MessageWriter& writer) {
  has_arguments_ = true;
  if (streams_) return end_call(writer);
  buffered_arguments_ = value_;
  if (value_[0] == '"') {
    const std::optional<std::string> inner = string_value(value_);
    if (!inner) return false;
    buffered_arguments_ = *inner;
  }
  if (name_.empty()) return true;
  if (!start_call(writer)) return false;
  writer.arguments(buffered_arguments_);
  return end_call(writer);
}

bool JsonCallReader::end_object(MessageWriter& writer) {
  if (phase_ == Phase::ended) {
    writer.commit();
    return true;
  }
  if (name_.empty() || has_arguments_ || rules_.strict) return false;
  if (!start_call(writer)) return false;
  writer.arguments("{}");
  return end_call(writer);
}

bool JsonCallReader::start_call(MessageWriter& writer) {
  if (rules_.known_only && !writer.tools().has_function(name_)) return false;
  writer.start_call(name_, id_);
  phase_ = Phase::open;
  return true;
}

bool JsonCallReader::end_call(MessageWriter& writer) {
  if (!writer.end_call()) return false;
  phase_ = Phase::ended;
  return true;
}

void JsonArgumentsReader::begin(std::string_view name, std::string_view id) {
  name_ = name;
  id_ = id;
  scanner_.reset();
}

CallReader::Step JsonArgumentsReader::push(char c, MessageWriter& writer) {
  if (!writer.call_is_open()) {
    if (is_json_space(c)) return CallReader::Step::more;
    if (c != '{') return CallReader::Step::failed;
    writer.start_call(name_, id_);
  }
  const bool in_string = scanner_.in_string();
  const JsonScanner::Step step = scanner_.push(c);
  if (step == JsonScanner::Step::error) return CallReader::Step::failed;
  std::string text;
  append_scanned(text, c, in_string);
  writer.arguments(text);
  if (step == JsonScanner::Step::more) return CallReader::Step::more;
  return writer.end_call() ? CallReader::Step::done : CallReader::Step::failed;
}

}  // namespace zinc
