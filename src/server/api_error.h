// What a client is told when a request cannot be answered: a status, a kind, a message that names the field. Written in
// the form of the API that was called. The one table from ErrorCode to HTTP is in api_error.cc.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "server/http_message.h"

namespace zinc {

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message = {};
  std::string param = {};  // the field that is wrong; empty: none
  std::string code = {};   // a word for programs, such as "context_length_exceeded"; empty: none
  // Not sent. The request names a model that is not loaded, or none while none is: it could be brought.
  std::optional<std::string> missing_model = {};
};

ApiError api_error(const Error& error);                                   // by the table
ApiError http_error(int status, std::string_view message);                // by status alone
ApiError bad_field(std::string_view param, std::string message);          // 400
ApiError no_such_model(std::string message);                              // 404
ApiError unsupported_field(std::string_view param, std::string message);  // 400, of something that is not there yet

enum class ErrorForm : uint8_t { openai, anthropic };
json::object error_body(const ApiError& error, ErrorForm form);
HttpResponse error_response(const ApiError& error, ErrorForm form);

// Collects what is wrong with a request and keeps the first of it, so that readers need no error plumbing.
class RequestErrors {
 public:
  template <class... Args>
  void add(std::string_view param, fmt::format_string<Args...> format, Args&&... args) {
    add(bad_field(param, fmt::format(format, std::forward<Args>(args)...)));
  }
  void add(ApiError error) {
    if (!first_) first_ = std::move(error);
  }
  bool any() const { return first_.has_value(); }
  const std::optional<ApiError>& first() const { return first_; }

 private:
  std::optional<ApiError> first_;
};

}  // namespace zinc
