#include "base/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/src.hpp>

#include <charconv>
#include <cmath>

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr size_t kMaxJsonDepth = 64;
constexpr int kOneLine = -1;

// Builds the value. Numbers with a fraction are read again from their text: Boost 1.81 rounds 10 % of the 17-digit
// numbers in [0, 1) to a neighbor, and lets 1e999 through as infinity.
struct ValueBuilder {
  static constexpr size_t max_object_size = json::object::max_size();
  static constexpr size_t max_array_size = json::array::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  static constexpr size_t max_string_size = json::string::max_size();
  using ErrorCode = boost::system::error_code;

  json::value_stack stack;
  std::string number;  // the earlier parts of the number being read

  bool on_document_begin(ErrorCode&) { return true; }
  bool on_document_end(ErrorCode&) { return true; }
  bool on_object_begin(ErrorCode&) { return true; }
  bool on_object_end(size_t n, ErrorCode&) { return stack.push_object(n), true; }
  bool on_array_begin(ErrorCode&) { return true; }
  bool on_array_end(size_t n, ErrorCode&) { return stack.push_array(n), true; }
  bool on_key_part(json::string_view text, size_t, ErrorCode&) { return stack.push_chars(text), true; }
  bool on_key(json::string_view text, size_t, ErrorCode&) { return stack.push_key(text), true; }
  bool on_string_part(json::string_view text, size_t, ErrorCode&) { return stack.push_chars(text), true; }
  bool on_string(json::string_view text, size_t, ErrorCode&) { return stack.push_string(text), true; }
  bool on_number_part(json::string_view text, ErrorCode&) { return number += text, true; }
  bool on_int64(int64_t value, json::string_view, ErrorCode&) { return number.clear(), stack.push_int64(value), true; }
  bool on_uint64(uint64_t value, json::string_view, ErrorCode&) {
    return number.clear(), stack.push_uint64(value), true;
  }
  bool on_double(double estimate, json::string_view text, ErrorCode& error) {
    number += text;
    double value = 0;
    const std::from_chars_result read = std::from_chars(number.data(), number.data() + number.size(), value);
    number.clear();
    if (read.ec == std::errc::result_out_of_range) {
      if (std::fabs(estimate) > 1) {
        error = json::error::exponent_overflow;
        return false;
      }
      value = std::copysign(0.0, estimate);
    }
    stack.push_double(value);
    return true;
  }
  bool on_bool(bool value, ErrorCode&) { return stack.push_bool(value), true; }
  bool on_null(ErrorCode&) { return stack.push_null(), true; }
  bool on_comment_part(json::string_view, ErrorCode&) { return true; }
  bool on_comment(json::string_view, ErrorCode&) { return true; }
};

void print_string(std::string_view text, std::string& out) {
  if (is_valid_utf8(text)) {
    out += json::serialize(json::string_view(text));
  } else {
    out += json::serialize(json::string_view(replace_invalid_utf8(text)));
  }
}

// The shortest text that round-trips as a double: 1.0, not 1.
void print_double(double value, std::string& out) {
  if (!std::isfinite(value)) {
    out += "null";  // JSON has no infinity and no NaN
    return;
  }
  const std::string text = fmt::format("{}", value);
  out += text;
  if (text.find_first_of(".e") == std::string::npos) out += ".0";
}

void print(const json::value& value, int depth, std::string& out);

void new_line(int depth, std::string& out) {
  if (depth == kOneLine) return;
  out += '\n';
  out.append(static_cast<size_t>(depth) * 2, ' ');
}

void print_object(const json::object& object, int depth, std::string& out) {
  const int inner = depth == kOneLine ? kOneLine : depth + 1;
  out += '{';
  bool is_first = true;
  for (const auto& [key, member] : object) {
    if (!is_first) out += ',';
    is_first = false;
    new_line(inner, out);
    print_string(key, out);
    out += depth == kOneLine ? ":" : ": ";
    print(member, inner, out);
  }
  if (!is_first) new_line(depth, out);
  out += '}';
}

void print_array(const json::array& array, int depth, std::string& out) {
  const int inner = depth == kOneLine ? kOneLine : depth + 1;
  out += '[';
  bool is_first = true;
  for (const json::value& element : array) {
    if (!is_first) out += ',';
    is_first = false;
    new_line(inner, out);
    print(element, inner, out);
  }
  if (!is_first) new_line(depth, out);
  out += ']';
}

void print(const json::value& value, int depth, std::string& out) {
  switch (value.kind()) {
    case json::kind::object:
      return print_object(value.get_object(), depth, out);
    case json::kind::array:
      return print_array(value.get_array(), depth, out);
    case json::kind::string:
      return print_string(value.get_string(), out);
    case json::kind::double_:
      return print_double(value.get_double(), out);
    default:
      out += json::serialize(value);
  }
}

}  // namespace

Result<json::value> parse_json(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::basic_parser<ValueBuilder> parser(options);
  boost::system::error_code error;
  parser.handler().stack.reset();
  const size_t n_read = parser.write_some(false, text.data(), text.size(), error);
  if (!error && n_read < text.size()) {
    return fail(ErrorCode::invalid_input, "JSON: unexpected text after the value, at byte {}", n_read);
  }
  if (error) return fail(ErrorCode::invalid_input, "JSON: {} at byte {}", error.message(), n_read);
  return parser.handler().stack.release();
}

std::string to_json(const json::value& value) {
  std::string out;
  print(value, kOneLine, out);
  return out;
}

std::string to_pretty_json(const json::value& value) {
  std::string out;
  print(value, 0, out);
  return out;
}

}  // namespace zinc
