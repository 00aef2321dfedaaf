// JSON as Boost.JSON values (objects keep their order, 1.0 stays a double), with errors as Result.
#pragma once

#include <boost/json.hpp>

#include <string>
#include <string_view>

#include "base/result.h"

namespace zinc {

namespace json = boost::json;

// Parses one whole JSON text. Nesting is limited to 64, so that hostile input cannot exhaust the stack.
Result<json::value> parse_json(std::string_view text);

// `value` on one line, or indented by two spaces.
std::string to_json(const json::value& value);
std::string to_pretty_json(const json::value& value);

}  // namespace zinc
