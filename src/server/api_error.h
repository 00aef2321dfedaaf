// An error response: a status, a type and a message that names the field, in the error format of the API that was
// called. The only mapping from ErrorCode to HTTP status is the table in api_error.cc.
#pragma once

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "chat/request_error.h"
#include "server/http_message.h"

namespace zinc {

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message = {};
  std::string param = {};     // the invalid field; empty: none
  std::string code = {};      // machine-readable, such as "context_length_exceeded"; empty: none
  int retry_after_s = 0;      // for the Retry-After header; 0: none, or the default of a 503
  json::object details = {};  // of Anthropic's error object: what a client can do without; empty: none
  // Not sent. The requested model is not loaded (empty: no model is loaded); loading it may make the request possible.
  std::optional<std::string> missing_model = {};
};

template <class T>
using OrApiError = std::variant<T, ApiError>;

ApiError api_error(const Error& error);                           // by the table in api_error.cc
ApiError api_error(const RequestError& error);                    // the same, with its field
ApiError http_error(int status, std::string_view message);        // by status
ApiError bad_field(std::string_view param, std::string message);  // 400
inline constexpr std::string_view kModelNotFound = "model_not_found";
ApiError model_not_found(std::string message);  // 404, code kModelNotFound
// 400, in the words that clients search for to compact a conversation or to choose another model.
ApiError context_exceeded(size_t n_prompt, size_t context, std::string_view model, std::string_view param);
ApiError unsupported_field(std::string_view param, std::string message);  // 400, code "unsupported"

enum class ErrorFormat : uint8_t { openai, anthropic, ollama };
json::object error_body(const ApiError& error, ErrorFormat format);
HttpResponse error_response(const ApiError& error, ErrorFormat format);

enum class UnknownFields : uint8_t { ignore, reject };

// Collects the errors of a request and keeps the first, so that readers need no error plumbing. Also collects the names
// of ignored fields.
class RequestErrors {
 public:
  explicit RequestErrors(UnknownFields unknown = UnknownFields::ignore) : unknown_(unknown) {}

  template <class... Args>
  void add(std::string_view param, fmt::format_string<Args...> format, Args&&... args) {
    add(bad_field(param, fmt::format(format, std::forward<Args>(args)...)));
  }
  void add(ApiError error) {
    if (!first_) first_ = std::move(error);
  }
  bool any() const { return first_.has_value(); }
  const std::optional<ApiError>& first() const { return first_; }

  // A field that the server does not know: an error, or ignored.
  void add_unknown_field(const std::string& name);
  const std::vector<std::string>& ignored_fields() const { return ignored_fields_; }

 private:
  UnknownFields unknown_;
  std::optional<ApiError> first_;
  std::vector<std::string> ignored_fields_;  // at most kMaxIgnoredFields, safe to write into a header
};

}  // namespace zinc
