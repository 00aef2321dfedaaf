#include "text/json_scanner.h"

#include <fmt/core.h>

namespace zinc {
namespace {

constexpr size_t kMaxDepth = 60;  // parse_json allows 64, and a message in JSON nests arguments three levels deep

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }

}  // namespace

JsonScanner::Step JsonScanner::push(char c) {
  if (in_string()) return in_string_step(c);
  if (state_ == State::literal) {
    if (literal_.empty() || c != literal_[0]) return Step::error;
    literal_.remove_prefix(1);
    return literal_.empty() ? end_value() : Step::more;
  }
  if (state_ > State::literal) return number_step(c);
  if (is_space(c)) return Step::more;
  return between(c);
}

JsonScanner::Step JsonScanner::between(char c) {
  switch (state_) {
    case State::first_value:
      if (c == ']') {
        open_.pop_back();
        return end_value();
      }
      return begin_value(c);
    case State::value:
      return begin_value(c);
    case State::first_key:
    case State::key:
      if (c == '}' && state_ == State::first_key) {
        open_.pop_back();
        return end_value();
      }
      if (c != '"') return Step::error;
      is_key_ = true;
      return go(State::string);
    case State::colon:
      return c == ':' ? go(State::value) : Step::error;
    default:
      break;
  }
  if (open_.empty()) return Step::error;  // data after the outermost value
  const bool is_object = open_.back() == '{';
  if (c == ',') return go(is_object ? State::key : State::value);
  if (c != (is_object ? '}' : ']')) return Step::error;
  open_.pop_back();
  return end_value();
}

JsonScanner::Step JsonScanner::begin_value(char c) {
  if (c == '{' || c == '[') {
    if (open_.size() >= kMaxDepth) return Step::error;
    open_ += c;
    return go(c == '{' ? State::first_key : State::first_value);
  }
  if (c == '"') {
    is_key_ = false;
    return go(State::string);
  }
  if (c == '-') return go(State::minus);
  if (c == '0') return go(State::zero);
  if (is_digit(c)) return go(State::digits);
  if (c != 't' && c != 'f' && c != 'n') return Step::error;
  literal_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
  return go(State::literal);
}

JsonScanner::Step JsonScanner::in_string_step(char c) {
  if (state_ == State::hex) {
    if (!is_hex(c)) return Step::error;
    return ++n_hex_ == 4 ? go(State::string) : Step::more;
  }
  if (state_ == State::escape) {
    if (c == 'u') {
      n_hex_ = 0;
      return go(State::hex);
    }
    return std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos ? Step::error : go(State::string);
  }
  if (c == '\\') return go(State::escape);
  if (c != '"') return Step::more;
  return is_key_ ? go(State::colon) : end_value();
}

JsonScanner::Step JsonScanner::number_step(char c) {
  const bool digit = is_digit(c);
  const bool exponent = c == 'e' || c == 'E';
  bool may_end = true;
  switch (state_) {
    case State::minus:
      if (digit) return go(c == '0' ? State::zero : State::digits);
      may_end = false;
      break;
    case State::zero:
    case State::digits:
      if (digit && state_ == State::digits) return Step::more;
      if (c == '.') return go(State::point);
      if (exponent) return go(State::exponent);
      break;
    case State::point:
    case State::fraction:
      if (digit) return go(State::fraction);
      if (exponent && state_ == State::fraction) return go(State::exponent);
      may_end = state_ == State::fraction;
      break;
    case State::exponent:
      if (c == '+' || c == '-') return go(State::exponent_sign);
      [[fallthrough]];
    default:
      if (digit) return go(State::exponent_digits);
      may_end = state_ == State::exponent_digits;
      break;
  }
  if (!may_end || open_.empty()) return Step::error;
  state_ = State::after_value;
  return is_space(c) ? Step::more : between(c);
}

bool JsonScanner::number_ends_before(char c) const {
  const bool is_whole =
      state_ == State::zero || state_ == State::digits || state_ == State::fraction || state_ == State::exponent_digits;
  return is_whole && open_.empty() && (is_space(c) || c == ',' || c == '}' || c == ']');
}

JsonScanner::Step JsonScanner::end_value() {
  state_ = State::after_value;
  return open_.empty() ? Step::done : Step::more;
}

void append_scanned(std::string& out, char c, bool in_string) {
  if (in_string && is_control(c)) {
    append_json_escaped(out, std::string_view(&c, 1));
  } else {
    out += c;
  }
}

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (is_control(c)) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
}

}  // namespace zinc
