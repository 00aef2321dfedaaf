#include "cli/server_client.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <memory>

#include "cli/sanitize_line.h"

namespace zinc {
namespace {

constexpr long kConnectMs = 5'000;
constexpr size_t kMaxResponse = size_t{64} << 20, kMaxMessage = 500;

struct CloseCurl {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

size_t append_body(char* bytes, size_t size, size_t n, void* text) {
  std::string& out = *static_cast<std::string*>(text);
  if (out.size() + size * n > kMaxResponse) return 0;
  out.append(bytes, size * n);
  return size * n;
}

// The message of an error response: {"error": {"message": ...}}.
std::string error_message(const Result<json::value>& response) {
  const json::object* body = response.ok() ? response.value().if_object() : nullptr;
  const json::value* error = body ? body->if_contains("error") : nullptr;
  const json::object* fields = error ? error->if_object() : nullptr;
  const json::value* message = fields ? fields->if_contains("message") : nullptr;
  if (!message || !message->is_string()) return "";
  return sanitize_line(std::string_view(message->get_string()).substr(0, kMaxMessage));
}

Error response_error(const ServerAddress& server, long status, const Result<json::value>& response) {
  if (status == 401) {
    return fail(ErrorCode::invalid_input, "{}: the server wants an API key; pass --api-key or set ZINC_API_KEY",
                server.url);
  }
  const std::string message = error_message(response);
  if (!message.empty()) return fail(ErrorCode::invalid_input, "{}", message);
  return fail(ErrorCode::unavailable, "{}: HTTP status {}; is it a zinc server?", server.url, status);
}

}  // namespace

void declare_server_options(CLI::App& app, ServerAddress& server) {
  app.add_option("--server", server.url, "address of the server")->option_text("URL")->capture_default_str();
  app.add_option("--api-key", server.key, "API key of the server")->option_text("KEY")->envname("ZINC_API_KEY");
}

Result<json::value> call_server(const ServerAddress& server, const std::string& path, const json::object* body,
                                std::chrono::seconds time_limit) {
  const std::unique_ptr<CURL, CloseCurl> handle(curl_easy_init());
  if (!handle) return fail(ErrorCode::out_of_memory, "libcurl could not be started");
  std::string base = server.url;
  while (base.ends_with('/')) base.pop_back();
  const std::string url = base + path, sent = body ? to_json(*body) : "";
  std::string received;
  std::unique_ptr<curl_slist, CloseCurl> headers(curl_slist_append(nullptr, "Content-Type: application/json"));
  if (!server.key.empty()) {
    const std::string line = "Authorization: Bearer " + server.key;
    headers.reset(curl_slist_append(headers.release(), line.c_str()));
  }
  curl_easy_setopt(handle.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle.get(), CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle.get(), CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(handle.get(), CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
  curl_easy_setopt(handle.get(), CURLOPT_TIMEOUT, static_cast<long>(time_limit.count()));
  curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, append_body);
  curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &received);
  if (body) curl_easy_setopt(handle.get(), CURLOPT_POSTFIELDS, sent.c_str());
  if (const CURLcode code = curl_easy_perform(handle.get()); code != CURLE_OK) {
    return fail(ErrorCode::unavailable,
                "no answer from {}: {}; start a server with `zinc serve`, or give its address with --server",
                server.url, curl_easy_strerror(code));
  }
  long status = 0;
  curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &status);
  Result<json::value> response = parse_json(received);
  const bool is_good = status >= 200 && status < 300 && response.ok();
  return is_good ? std::move(response) : response_error(server, status, response);
}

Result<std::vector<json::object>> loaded_models(const ServerAddress& server, std::chrono::seconds time_limit) {
  ZINC_TRY(body, call_server(server, "/v1/models", nullptr, time_limit));
  const json::object* fields = body.if_object();
  const json::value* data = fields ? fields->if_contains("data") : nullptr;
  if (!data || !data->is_array()) return fail(ErrorCode::unavailable, "{}: not a zinc server", server.url);
  std::vector<json::object> models;
  for (const json::value& entry : data->get_array()) {
    const json::object* model = entry.if_object();
    const json::value* active = model ? model->if_contains("active") : nullptr;
    if (active && active->is_bool() && active->get_bool() && model->contains("id")) models.push_back(*model);
  }
  return models;
}

}  // namespace zinc
