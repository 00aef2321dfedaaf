// Access control: API keys, and for browsers the Host and Origin headers. Immutable; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"
#include "server/api_error.h"
#include "server/http_message.h"

namespace zinc {

struct AccessOptions {
  std::vector<std::string> keys;             // empty: no key is required
  std::vector<std::string> allowed_hosts;    // accepted Host names besides IP addresses and localhost
  std::vector<std::string> allowed_origins;  // other origins whose pages may send requests; "*": all
};

// The client of a request, as the engine sees it.
struct Client {
  std::string name;                                   // scheduling is fair between names
  CacheNamespace cache_namespace = kSharedNamespace;  // per key, if there are several keys
};

class AccessControl {
 public:
  explicit AccessControl(const AccessOptions& options);

  bool needs_key() const { return !key_digests_.empty(); }

  // Without API keys, Host must be an IP address, localhost or an allowed name, which prevents DNS rebinding. Origin,
  // if present, must be the same as Host or allowed.
  std::optional<ApiError> check_origin(const HttpRequest& request) const;
  // "Authorization: Bearer KEY" or "x-api-key: KEY". Compared in constant time.
  std::optional<ApiError> check_key(const HttpRequest& request) const;

  // CORS headers for an allowed origin; none for other requests.
  std::vector<HttpHeader> cors_headers(const HttpRequest& request) const;
  // Identified by its key, else by its address.
  Client client_of(const HttpRequest& request) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest digest_of(std::string_view key);

  std::vector<Digest> key_digests_;
  std::vector<std::string> allowed_hosts_, allowed_origins_;
};

}  // namespace zinc
