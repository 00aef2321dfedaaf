// Functions that can fail because of files, users, network, memory or devices return Result.
// An Error's message says what failed, where, expected, found and what to do; it is shown to the user unchanged.
#pragma once

#include <fmt/core.h>

#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace zinc {

enum class ErrorCode : uint8_t {
  invalid_input,
  context_exceeded,  // a prompt longer than the context
  not_found,
  unsupported,
  out_of_memory,
  unavailable,  // try again later
  device_lost,
  io,
  cancelled
};

struct Error {
  ErrorCode code;
  std::string message;
};

template <class... Args>
Error fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::format(format, std::forward<Args>(args)...)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }

  T& value() {  // REQUIRES: ok()
    ZINC_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const {  // REQUIRES: ok()
    ZINC_CHECK(ok());
    return *std::get_if<0>(&state_);
  }
  const Error& error() const {  // REQUIRES: !ok()
    ZINC_CHECK(!ok());
    return *std::get_if<1>(&state_);
  }

 private:
  std::variant<T, Error> state_;
};

using Status = Result<std::monostate>;
inline Status ok_status() { return std::monostate{}; }

}  // namespace zinc

// Binds `name` to the value of a Result, or returns its error from the enclosing function.
#define ZINC_TRY(name, ...)                              \
  auto name##_result = (__VA_ARGS__);                    \
  if (!name##_result.ok()) return name##_result.error(); \
  [[maybe_unused]] auto& name = name##_result.value()
