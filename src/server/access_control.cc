#include "server/access_control.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

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
  const std::string_view key = request.header("x-api-key");  // Anthropic
  return key.empty() ? request.header("api-key") : key;      // Azure
}

// Names that no DNS server of another network resolves: RFC 6761, 6762 (mDNS) and the private-use top-level domain.
bool is_local_name(std::string_view host) {
  return host.ends_with(".localhost") || host.ends_with(".local") || host.ends_with(".internal");
}

// Pages served by this machine, and apps with an embedded browser. Not "null": sandboxed frames of any page send it.
bool is_local_app(std::string_view origin) {
  for (const std::string_view scheme : {"app://", "tauri://", "vscode-webview://", "file://"}) {
    if (origin.starts_with(scheme)) return true;
  }
  if (!origin.starts_with("http://") && !origin.starts_with("https://")) return false;
  const std::string_view host = host_name(origin_host(origin));
  return host == "localhost" || host == "127.0.0.1" || host == "0.0.0.0" || host == "[::1]" ||
         host.ends_with(".localhost");
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

AccessControl::AccessControl(const AccessOptions& options)
    : allowed_hosts_(options.allowed_hosts),
      allowed_origins_(options.allowed_origins),
      trusts_local_apps_(options.trusts_local_apps) {
  for (const std::string& key : options.keys)
    keys_.push_back(std::make_shared<ApiKey>(ApiKeyOptions{.digest = digest_of_key(key)}));
  set_named_keys(options.named_keys);
}

void AccessControl::set_named_keys(const std::vector<ApiKeyOptions>& options) {
  const std::vector<std::shared_ptr<ApiKey>> before = named_keys();
  std::erase_if(keys_, [](const std::shared_ptr<ApiKey>& key) { return !key->options().name.empty(); });
  for (const ApiKeyOptions& wanted : options) {
    const auto old =
        std::ranges::find(before, wanted.name, [](const std::shared_ptr<ApiKey>& key) { return key->options().name; });
    keys_.push_back(old == before.end() ? std::make_shared<ApiKey>(wanted) : *old);
    keys_.back()->set_options(wanted);
  }
}

std::vector<std::shared_ptr<ApiKey>> AccessControl::named_keys() const {
  std::vector<std::shared_ptr<ApiKey>> out;
  for (const std::shared_ptr<ApiKey>& key : keys_) {
    if (!key->options().name.empty()) out.push_back(key);
  }
  return out;
}

const std::shared_ptr<ApiKey>* AccessControl::find_key(std::string_view key) const {
  const KeyDigest digest = digest_of_key(key);
  const std::shared_ptr<ApiKey>* found = nullptr;
  for (const std::shared_ptr<ApiKey>& known : keys_) {  // always compare all of them
    const KeyDigest& other = known->options().digest;
    if (CRYPTO_memcmp(digest.data(), other.data(), digest.size()) == 0) found = &known;
  }
  return found;
}

bool AccessControl::is_allowed_host(std::string_view name) const {
  return name.empty() || is_address(name) || name == "localhost" || (trusts_local_apps_ && is_local_name(name)) ||
         std::ranges::find(allowed_hosts_, name) != allowed_hosts_.end();
}

bool AccessControl::is_allowed_origin(std::string_view origin) const {
  if (trusts_local_apps_ && is_local_app(lower_case(origin))) return true;
  return std::ranges::any_of(allowed_origins_,
                             [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

std::optional<ApiError> AccessControl::check_origin(const HttpRequest& request) const {
  const std::string host = lower_case(request.header("host"));
  const std::string_view name = host_name(host);
  if (!is_allowed_host(name) && !needs_key()) {
    return http_error(403,
                      fmt::format("the Host name '{}' is not allowed; start the server with --allowed-host to allow it",
                                  name.substr(0, 100)));
  }
  const std::string_view origin = request.header("origin");
  if (origin.empty() || lower_case(origin_host(origin)) == host || is_allowed_origin(origin)) return {};
  return http_error(403, fmt::format("the origin '{}' is not allowed; start the server with --cors-origin to allow it",
                                     origin.substr(0, 100)));
}

std::optional<ApiError> AccessControl::check_key(const HttpRequest& request) const {
  if (!needs_key()) return {};
  const std::string_view key = key_of(request);
  if (find_key(key)) return {};
  ApiError error = http_error(
      401, key.empty() ? "an API key is required: send it as 'Authorization: Bearer KEY'" : "the API key is not valid");
  error.code = "invalid_api_key";
  return error;
}

std::vector<HttpHeader> AccessControl::cors_headers(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !is_allowed_origin(origin)) return {};
  return {{"Access-Control-Allow-Origin", std::string(origin)},
          {"Vary", "Origin"},
          {"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
          {"Access-Control-Allow-Headers", allowed_headers(request)},
          {"Access-Control-Expose-Headers", "x-request-id, request-id, retry-after, x-zinc-ignored-fields"},
          {"Access-Control-Max-Age", "600"}};
}

Client AccessControl::client_of(const HttpRequest& request) const {
  const std::shared_ptr<ApiKey>* found = needs_key() ? find_key(key_of(request)) : nullptr;
  if (!found) return {.name = request.client};
  const ApiKeyOptions& options = (*found)->options();
  Client client{.name = std::string(options.digest.begin(), options.digest.end()), .cache_share = options.cache_share};
  if (keys_.size() > 1) std::memcpy(&client.cache_namespace, options.digest.data(), sizeof client.cache_namespace);
  if (!options.name.empty()) client.key = *found;
  return client;
}

}  // namespace zinc
