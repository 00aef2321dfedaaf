// The functions offered to the model, as far as reading its calls needs them: their names and, for formats that write
// parameters as bare text, the JSON types each parameter may have. Immutable once made.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/json.h"

namespace zinc {

// A set of JSON types. Zero: the schema does not say.
using JsonTypes = uint8_t;
constexpr JsonTypes kStringType = 1, kNumberType = 2, kBooleanType = 4, kNullType = 8, kObjectType = 16,
                    kArrayType = 32;

class ToolSchemas {
 public:
  ToolSchemas() = default;  // no function is offered

  // `tools`: the array of an OpenAI request, [{"type": "function", "function": {"name", "parameters"}}, ...]; the inner
  // object alone is accepted as well. What a schema leaves out or puts oddly is "any type", not an error.
  static Result<ToolSchemas> read(const json::value& tools);

  bool empty() const { return functions_.empty(); }
  bool offers(std::string_view function) const { return functions_.find(function) != functions_.end(); }

  // Types of a parameter. A function that was not offered takes text: nothing else is known about it.
  JsonTypes types(std::string_view function, std::string_view parameter) const;

 private:
  using Parameters = std::map<std::string, JsonTypes, std::less<>>;
  std::map<std::string, Parameters, std::less<>> functions_;
};

}  // namespace zinc
