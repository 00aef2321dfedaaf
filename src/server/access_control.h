// Access control: API keys with their limits, and for browsers the Host and Origin headers. Event-loop thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/api_error.h"
#include "server/api_keys.h"
#include "server/http_message.h"

namespace zinc {

struct AccessOptions {
  std::vector<std::string> keys;               // without limits
  std::vector<std::string> allowed_hosts;      // accepted Host names besides IP addresses and localhost
  std::vector<std::string> allowed_origins;    // other origins whose pages may send requests; "*": all
  std::vector<ApiKeyOptions> named_keys = {};  // with limits. Neither these nor `keys`: no key is required
  // Pages and apps of this machine may send requests, and Host may end in .localhost, .local or .internal. For servers
  // that only this machine can reach, or that require a key.
  bool trusts_local_apps = false;
};

// The client of a request, as the engine sees it.
struct Client {
  std::string name;                                   // scheduling is fair between names
  CacheNamespace cache_namespace = kSharedNamespace;  // per key, if there are several keys
  double cache_share = 1;
  std::shared_ptr<ApiKey> key = {};  // nullptr: no named key
};

class AccessControl {
 public:
  explicit AccessControl(const AccessOptions& options);

  bool needs_key() const { return !keys_.empty(); }
  // Replaces the named keys; a key of the same name keeps its usage. Requests in progress are not affected.
  void set_named_keys(const std::vector<ApiKeyOptions>& options);
  std::vector<std::shared_ptr<ApiKey>> named_keys() const;

  // Without API keys, Host must be an IP address, localhost or an allowed name, which prevents DNS rebinding. Origin,
  // if present, must be the same as Host or allowed.
  std::optional<ApiError> check_origin(const HttpRequest& request) const;
  // "Authorization: Bearer KEY", "x-api-key: KEY" or "api-key: KEY". Compared in constant time.
  std::optional<ApiError> check_key(const HttpRequest& request) const;

  // CORS headers for an allowed origin; none for other requests.
  std::vector<HttpHeader> cors_headers(const HttpRequest& request) const;
  // Identified by its key, else by its address.
  Client client_of(const HttpRequest& request) const;

 private:
  const std::shared_ptr<ApiKey>* find_key(std::string_view key) const;  // nullptr: unknown
  bool is_allowed_host(std::string_view name) const;
  bool is_allowed_origin(std::string_view origin) const;

  std::vector<std::shared_ptr<ApiKey>> keys_;
  std::vector<std::string> allowed_hosts_, allowed_origins_;
  bool trusts_local_apps_;
};

}  // namespace zinc
