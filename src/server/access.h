// Who may ask: API keys, and for browsers the Host and Origin of a request. Immutable; any thread.
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
  std::vector<std::string> keys;             // none: everyone may
  std::vector<std::string> allowed_hosts;    // names this server goes by, beside addresses and localhost
  std::vector<std::string> allowed_origins;  // pages of other origins that may ask; "*": all
};

// Who asks, as the engine is told.
struct Client {
  std::string name;                     // requests of one name share its turns
  CacheOwner cache_owner = kEverybody;  // a key's own, where there are several
};

class Access {
 public:
  explicit Access(const AccessOptions& options);

  bool needs_key() const { return !key_digests_.empty(); }

  // Without a key, Host must be an address, localhost or an allowed name: a page whose name was made to point at this
  // machine (DNS rebinding) is refused. Origin, where there is one, must be Host's own or allowed.
  std::optional<ApiError> check_page(const HttpRequest& request) const;
  // "Authorization: Bearer KEY" or "x-api-key: KEY". The time taken does not depend on how much of a key is right.
  std::optional<ApiError> check_key(const HttpRequest& request) const;

  // Headers that let the allowed page read the response; none for other requests.
  std::vector<HttpHeader> cors_headers(const HttpRequest& request) const;
  // By the key, else by the address.
  Client client_of(const HttpRequest& request) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest digest_of(std::string_view key);

  std::vector<Digest> key_digests_;
  std::vector<std::string> allowed_hosts_, allowed_origins_;
};

}  // namespace zinc
