#include "server/api_error.h"

#include <algorithm>
#include <cctype>

#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

constexpr size_t kMaxIgnoredFields = 16;      // names in the header and in the log line
constexpr size_t kMaxIgnoredFieldBytes = 64;  // of one name

// Only characters that cannot end a header.
std::string header_safe(std::string_view name) {
  std::string out(name.substr(0, kMaxIgnoredFieldBytes));
  for (char& c : out) {
    const bool is_safe = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
    if (!is_safe) c = '?';
  }
  return out;
}

struct CodeRow {
  ErrorCode code;
  int status;
  std::string_view type, name;  // of OpenAI's error object
};

constexpr CodeRow kCodeRows[] = {
    {ErrorCode::invalid_input, 400, "invalid_request_error", ""},
    {ErrorCode::context_exceeded, 400, "invalid_request_error", "context_length_exceeded"},
    {ErrorCode::not_found, 404, "invalid_request_error", "not_found"},
    {ErrorCode::unsupported, 400, "invalid_request_error", "unsupported"},
    {ErrorCode::out_of_memory, 503, "service_unavailable", "out_of_memory"},
    {ErrorCode::unavailable, 503, "service_unavailable", "unavailable"},
    {ErrorCode::device_lost, 500, "server_error", "device_lost"},
    {ErrorCode::io, 500, "server_error", "io"},
    {ErrorCode::cancelled, 503, "service_unavailable", "cancelled"},
};

struct StatusRow {
  int status;
  std::string_view openai_type, anthropic_type;
};

constexpr StatusRow kStatusRows[] = {
    {400, "invalid_request_error", "invalid_request_error"}, {401, "authentication_error", "authentication_error"},
    {403, "permission_error", "permission_error"},           {404, "invalid_request_error", "not_found_error"},
    {405, "invalid_request_error", "invalid_request_error"}, {409, "conflict_error", "invalid_request_error"},
    {413, "invalid_request_error", "request_too_large"},     {415, "invalid_request_error", "invalid_request_error"},
    {429, "rate_limit_error", "rate_limit_error"},           {431, "invalid_request_error", "request_too_large"},
    {503, "service_unavailable", "overloaded_error"},
};

const StatusRow& row_of(int status) {
  static constexpr StatusRow kOther = {500, "server_error", "api_error"};
  for (const StatusRow& row : kStatusRows) {
    if (row.status == status) return row;
  }
  return kOther;
}

constexpr int kRetryAfterS = 1;

json::value text_or_null(const std::string& text) { return text.empty() ? json::value(nullptr) : json::value(text); }

}  // namespace

ApiError api_error(const Error& error) {
  for (const CodeRow& row : kCodeRows) {
    if (row.code == error.code) {
      return {
          .status = row.status, .type = std::string(row.type), .message = error.message, .code = std::string(row.name)};
    }
  }
  return http_error(500, error.message);
}

ApiError api_error(const RequestError& error) {
  ApiError out = api_error(error.error);
  out.param = error.field;
  return out;
}

ApiError http_error(int status, std::string_view message) {
  return {.status = status, .type = std::string(row_of(status).openai_type), .message = std::string(message)};
}

ApiError bad_field(std::string_view param, std::string message) {
  return {.message = std::move(message), .param = std::string(param)};
}

ApiError model_not_found(std::string message) {
  return {.status = 404, .message = std::move(message), .param = "model", .code = std::string(kModelNotFound)};
}

ApiError context_exceeded(size_t n_prompt, size_t context, std::string_view model, std::string_view param) {
  return {.message = fmt::format("prompt is too long: {} tokens > {} maximum (context_length_exceeded): this model's "
                                 "maximum context length is {} tokens, at least one of them for the output; shorten "
                                 "the prompt or serve '{}' with a larger context",
                                 n_prompt, context, context, model),
          .param = std::string(param),
          .code = "context_length_exceeded"};
}

ApiError unsupported_field(std::string_view param, std::string message) {
  return {.message = std::move(message), .param = std::string(param), .code = "unsupported"};
}

json::object error_body(const ApiError& error, ErrorFormat format) {
  if (format == ErrorFormat::ollama) return {{"error", error.message}};
  if (format == ErrorFormat::anthropic) {
    json::object inside{{"type", row_of(error.status).anthropic_type}, {"message", error.message}};
    if (!error.details.empty()) inside["details"] = error.details;
    json::object out{{"type", "error"}};
    out["error"] = std::move(inside);
    return out;
  }
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

HttpResponse error_response(const ApiError& error, ErrorFormat format) {
  HttpResponse response{.status = error.status, .body = to_json(error_body(error, format)), .error = error.message};
  const int retry_after_s = error.retry_after_s > 0 ? error.retry_after_s : error.status == 503 ? kRetryAfterS : 0;
  if (retry_after_s > 0) response.headers.emplace_back("Retry-After", std::to_string(retry_after_s));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

void RequestErrors::add_unknown_field(const std::string& name) {
  if (unknown_ == UnknownFields::reject) {
    return add(name, "unknown field '{}'; GET /openapi.json lists the supported fields", sanitize_for_terminal(name));
  }
  std::string safe = header_safe(name);
  const bool is_new = std::ranges::find(ignored_fields_, safe) == ignored_fields_.end();
  if (is_new && ignored_fields_.size() < kMaxIgnoredFields) ignored_fields_.push_back(std::move(safe));
}

}  // namespace zinc
