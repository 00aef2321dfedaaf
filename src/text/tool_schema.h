// The functions in the request's tools, as needed to parse calls: names and, for formats that write parameters as bare
// text, the JSON types of each parameter. Immutable.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace zinc {

// A set of JSON types of a parameter. Zero: any type.
using ParameterTypes = uint8_t;
constexpr ParameterTypes kStringType = 1, kNumberType = 2, kBooleanType = 4, kNullType = 8, kObjectType = 16,
                         kArrayType = 32;

class ToolSchemas {
 public:
  ToolSchemas() = default;  // no functions

  // `tools`: the array of an OpenAI request, [{"type": "function", "function": {"name", "parameters"}}, ...]; the inner
  // object alone is accepted as well. A missing or invalid schema means "any type", not an error.
  static Result<ToolSchemas> read(const json::value& tools);

  bool empty() const { return functions_.empty(); }
  bool has_function(std::string_view function) const { return functions_.find(function) != functions_.end(); }

  // Types of a parameter. Parameters of unknown functions are strings.
  ParameterTypes types(std::string_view function, std::string_view parameter) const;

 private:
  using Parameters = std::map<std::string, ParameterTypes, std::less<>>;
  std::map<std::string, Parameters, std::less<>> functions_;
};

}  // namespace zinc
