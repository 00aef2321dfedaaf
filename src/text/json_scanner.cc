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
  if (at_ == At::literal) {
    if (literal_.empty() || c != literal_[0]) return Step::error;
    literal_.remove_prefix(1);
    return literal_.empty() ? end_value() : Step::more;
  }
  if (at_ > At::literal) return number_step(c);
  if (is_space(c)) return Step::more;
  return between(c);
}

JsonScanner::Step JsonScanner::between(char c) {
  switch (at_) {
    case At::first_value:
      if (c == ']') {
        open_.pop_back();
        return end_value();
      }
      return begin_value(c);
    case At::value:
      return begin_value(c);
    case At::first_key:
    case At::key:
      if (c == '}' && at_ == At::first_key) {
        open_.pop_back();
        return end_value();
      }
      if (c != '"') return Step::error;
      is_key_ = true;
      return go(At::string);
    case At::colon:
      return c == ':' ? go(At::value) : Step::error;
    default:
      break;
  }
  if (open_.empty()) return Step::error;  // something after the outermost value
  const bool is_object = open_.back() == '{';
  if (c == ',') return go(is_object ? At::key : At::value);
  if (c != (is_object ? '}' : ']')) return Step::error;
  open_.pop_back();
  return end_value();
}

JsonScanner::Step JsonScanner::begin_value(char c) {
  if (c == '{' || c == '[') {
    if (open_.size() >= kMaxDepth) return Step::error;
    open_ += c;
    return go(c == '{' ? At::first_key : At::first_value);
  }
  if (c == '"') {
    is_key_ = false;
    return go(At::string);
  }
  if (c == '-') return go(At::minus);
  if (c == '0') return go(At::zero);
  if (is_digit(c)) return go(At::digits);
  if (c != 't' && c != 'f' && c != 'n') return Step::error;
  literal_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
  return go(At::literal);
}

JsonScanner::Step JsonScanner::in_string_step(char c) {
  if (at_ == At::hex) {
    if (!is_hex(c)) return Step::error;
    return ++n_hex_ == 4 ? go(At::string) : Step::more;
  }
  if (at_ == At::escape) {
    if (c == 'u') {
      n_hex_ = 0;
      return go(At::hex);
    }
    return std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos ? Step::error : go(At::string);
  }
  if (c == '\\') return go(At::escape);
  if (c != '"') return Step::more;
  return is_key_ ? go(At::colon) : end_value();
}

JsonScanner::Step JsonScanner::number_step(char c) {
  const bool digit = is_digit(c);
  const bool exponent = c == 'e' || c == 'E';
  bool may_end = true;
  switch (at_) {
    case At::minus:
      if (digit) return go(c == '0' ? At::zero : At::digits);
      may_end = false;
      break;
    case At::zero:
    case At::digits:
      if (digit && at_ == At::digits) return Step::more;
      if (c == '.') return go(At::point);
      if (exponent) return go(At::exponent);
      break;
    case At::point:
    case At::fraction:
      if (digit) return go(At::fraction);
      if (exponent && at_ == At::fraction) return go(At::exponent);
      may_end = at_ == At::fraction;
      break;
    case At::exponent:
      if (c == '+' || c == '-') return go(At::exponent_sign);
      [[fallthrough]];
    default:
      if (digit) return go(At::exponent_digits);
      may_end = at_ == At::exponent_digits;
      break;
  }
  if (!may_end || open_.empty()) return Step::error;
  at_ = At::after_value;
  return is_space(c) ? Step::more : between(c);
}

bool JsonScanner::number_ends_before(char c) const {
  const bool is_whole = at_ == At::zero || at_ == At::digits || at_ == At::fraction || at_ == At::exponent_digits;
  return is_whole && open_.empty() && (is_space(c) || c == ',' || c == '}' || c == ']');
}

JsonScanner::Step JsonScanner::end_value() {
  at_ = At::after_value;
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
