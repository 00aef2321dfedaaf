#include "server/access_control.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstring>

namespace zinc {
namespace {

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string_view host_name(std::string_view host) {  // without the port
  if (host.starts_with('[')) return host.substr(0, std::min(host.find(']'), host.size() - 1) + 1);
  return host.substr(0, host.find(':'));
}

// Names can be rebound to another address; addresses cannot.
bool is_address(std::string_view host) {
  if (host.starts_with('[')) return true;
  return !host.empty() && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

std::string_view origin_host(std::string_view origin) {
  const size_t at = origin.find("://");
  return at == std::string_view::npos ? std::string_view() : origin.substr(at + 3);
}

std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view authorization = request.header("authorization");
  if (lower_case(authorization.substr(0, kBearer.size())) == kBearer) return authorization.substr(kBearer.size());
  return request.header("x-api-key");
}

// The requested headers are echoed: client packages send many of their own, none of which matters here.
std::string allowed_headers(const HttpRequest& request) {
  constexpr size_t kMaxBytes = 2048;
  constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_, ";
  const std::string_view requested = request.header("access-control-request-headers");
  const bool is_plain = requested.find_first_not_of(kNameCharacters) == std::string_view::npos;
  if (!requested.empty() && requested.size() <= kMaxBytes && is_plain) return std::string(requested);
  return "authorization, content-type, x-api-key, anthropic-version, anthropic-beta";
}

}  // namespace

AccessControl::Digest AccessControl::digest_of(std::string_view key) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

AccessControl::AccessControl(const AccessOptions& options)
    : allowed_hosts_(options.allowed_hosts), allowed_origins_(options.allowed_origins) {
  for (const std::string& key : options.keys) key_digests_.push_back(digest_of(key));
}

std::optional<ApiError> AccessControl::check_origin(const HttpRequest& request) const {
  const std::string host = lower_case(request.header("host"));
  const std::string_view name = host_name(host);
  const bool is_ours = name.empty() || is_address(name) || name == "localhost" ||
                       std::find(allowed_hosts_.begin(), allowed_hosts_.end(), name) != allowed_hosts_.end();
  if (!is_ours && !needs_key()) {
    return http_error(403,
                      fmt::format("the Host name '{}' is not allowed; start the server with --allowed-host to allow it",
                                  name.substr(0, 100)));
  }
  const std::string_view origin = request.header("origin");
  if (origin.empty() || lower_case(origin_host(origin)) == host || !cors_headers(request).empty()) return {};
  return http_error(403, fmt::format("the origin '{}' is not allowed; start the server with --cors-origin to allow it",
                                     origin.substr(0, 100)));
}

std::optional<ApiError> AccessControl::check_key(const HttpRequest& request) const {
  if (!needs_key()) return {};
  const std::string_view key = key_of(request);
  const Digest digest = digest_of(key);
  bool known = false;
  for (const Digest& other : key_digests_) {  // always compare all of them
    const bool same = CRYPTO_memcmp(digest.data(), other.data(), digest.size()) == 0;
    known = known | same;
  }
  if (known) return {};
  ApiError error = http_error(
      401, key.empty() ? "an API key is required: send it as 'Authorization: Bearer KEY'" : "the API key is not valid");
  error.code = "invalid_api_key";
  return error;
}

std::vector<HttpHeader> AccessControl::cors_headers(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return {};
  const bool is_allowed = std::any_of(allowed_origins_.begin(), allowed_origins_.end(),
                                      [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
  if (!is_allowed) return {};
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Vary", "Origin"},
          {"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
          {"Access-Control-Allow-Headers", allowed_headers(request)},
          {"Access-Control-Max-Age", "600"}};
}

Client AccessControl::client_of(const HttpRequest& request) const {
  if (!needs_key()) return {.name = request.client};
  const Digest digest = digest_of(key_of(request));
  Client client{.name = std::string(digest.begin(), digest.end())};
  if (key_digests_.size() > 1) std::memcpy(&client.cache_namespace, digest.data(), sizeof client.cache_namespace);
  return client;
}

}  // namespace zinc
