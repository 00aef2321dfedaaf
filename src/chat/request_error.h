// Why a request cannot be answered, and the field at fault.
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "base/result.h"

namespace zinc {

struct RequestError {
  std::string field;  // of ChatRequest, as OpenAI's API names it
  Error error;        // invalid_input or unsupported
};

template <class... Args>
RequestError invalid_field(std::string field, fmt::format_string<Args...> format, Args&&... args) {
  return {std::move(field), fail(ErrorCode::invalid_input, format, std::forward<Args>(args)...)};
}
template <class... Args>
RequestError refused_field(std::string field, fmt::format_string<Args...> format, Args&&... args) {
  return {std::move(field), fail(ErrorCode::unsupported, format, std::forward<Args>(args)...)};
}

template <class T>
using OrRequestError = std::variant<T, RequestError>;

}  // namespace zinc
