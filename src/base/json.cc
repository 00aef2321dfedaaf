#include "base/json.h"

#include <boost/json/src.hpp>

namespace zinc {
namespace {

constexpr size_t kMaxJsonDepth = 64;

void print_indented(const json::value& value, int depth, std::string& out) {
  const std::string margin(static_cast<size_t>(depth + 1) * 2, ' ');
  const std::string close(static_cast<size_t>(depth) * 2, ' ');
  const char* separator = "\n";
  if (const json::object* object = value.if_object(); object && !object->empty()) {
    out += '{';
    for (const auto& [key, member] : *object) {
      out += separator + margin + json::serialize(key) + ": ";
      print_indented(member, depth + 1, out);
      separator = ",\n";
    }
    out += "\n" + close + "}";
  } else if (const json::array* array = value.if_array(); array && !array->empty()) {
    out += '[';
    for (const json::value& element : *array) {
      out += separator + margin;
      print_indented(element, depth + 1, out);
      separator = ",\n";
    }
    out += "\n" + close + "]";
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

Result<json::value> parse_json(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  json::stream_parser parser({}, options);
  boost::system::error_code error;
  const size_t n_read = parser.write_some(text.data(), text.size(), error);
  if (!error && n_read < text.size()) {
    return fail(ErrorCode::invalid_input, "JSON: unexpected text after the value, at byte {}", n_read);
  }
  if (!error) parser.finish(error);
  if (error) return fail(ErrorCode::invalid_input, "JSON: {} at byte {}", error.message(), n_read);
  return parser.release();
}

std::string to_json(const json::value& value) { return json::serialize(value); }

std::string to_pretty_json(const json::value& value) {
  std::string out;
  print_indented(value, 0, out);
  return out;
}

}  // namespace zinc
