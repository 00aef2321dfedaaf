// API keys with limits, one per tenant: requests per minute, concurrent requests and a share of the prefix cache; and
// the usage counters behind /metrics. Event-loop thread only.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace zinc {

using KeyDigest = std::array<uint8_t, 32>;  // SHA-256
KeyDigest digest_of_key(std::string_view key);

struct ApiKeyOptions {
  KeyDigest digest = {};
  std::string name = {};        // in metrics and the log; empty: a key without limits and metrics
  int requests_per_minute = 0;  // 0: no limit
  int concurrent_requests = 0;  // 0: no limit
  double cache_share = 1;       // of the KV cache, for prefixes of finished requests
};

// The file of --api-keys: {"keys": [{"name": ..., "key": ... or "sha256": ..., limits}, ...]}.
Result<std::vector<ApiKeyOptions>> parse_api_keys(std::string_view text);
Result<std::vector<ApiKeyOptions>> read_api_keys(const std::filesystem::path& path);

struct KeyUsage {
  uint64_t n_requests = 0;  // accepted
  uint64_t n_over_rate = 0, n_over_concurrency = 0;
  uint64_t n_prompt_tokens = 0, n_completion_tokens = 0;
  int n_running = 0;
};

class ApiKey : public std::enable_shared_from_this<ApiKey> {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ApiKey(ApiKeyOptions options) : options_(std::move(options)), n_available_(options_.requests_per_minute) {}

  // Counts a request as running until the lease is destroyed, or rejects it with 429.
  std::variant<std::shared_ptr<void>, ApiError> admit(Clock::time_point now);
  void count_tokens(int n_prompt, int n_completion);
  void set_options(ApiKeyOptions options) { options_ = std::move(options); }  // usage is kept

  const ApiKeyOptions& options() const { return options_; }
  const KeyUsage& usage() const { return usage_; }

 private:
  void refill(Clock::time_point now);

  ApiKeyOptions options_;
  KeyUsage usage_;
  double n_available_;  // token bucket: requests that may start now; refilled continuously, up to a minute's worth
  std::optional<Clock::time_point> refilled_at_;
};

}  // namespace zinc
