// JSON as Boost.JSON values (objects keep their order, 1.0 stays a double), with errors as Result. Doubles round-trip
// exactly through text.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <string_view>

#include "base/result.h"

namespace zinc {

namespace json = boost::json;

// Parses one complete JSON text. Nesting is limited to 64, so that hostile input cannot exhaust the stack; numbers too
// large for a double are an error.
Result<json::value> parse_json(std::string_view text);

// `value` on one line, or indented by two spaces. Always valid JSON: infinities and NaN become null, bytes that are not
// UTF-8 become U+FFFD.
std::string to_json(const json::value& value);
std::string to_pretty_json(const json::value& value);

}  // namespace zinc
