#include "server/api_keys.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <utility>

#include "server/fields.h"

namespace zinc {
namespace {

constexpr FieldDoc kKeyFields[] = {{"name", "string", ""},
                                   {"key", "string", ""},
                                   {"sha256", "string", ""},
                                   {"requests_per_minute", "integer", ""},
                                   {"concurrent_requests", "integer", ""},
                                   {"cache_share", "number", ""}};
constexpr FieldDoc kFileFields[] = {{"keys", "array", ""}};
constexpr int kMaxLimit = 1'000'000;

std::optional<KeyDigest> parse_digest(std::string_view hex) {
  KeyDigest out{};
  if (hex.size() != 2 * out.size() || hex.find_first_not_of("0123456789abcdefABCDEF") != hex.npos) return {};
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<uint8_t>(std::stoi(std::string(hex.substr(2 * i, 2)), nullptr, 16));
  return out;
}

ApiKeyOptions read_key(const FieldReader& fields) {
  fields.check_known({kKeyFields});
  ApiKeyOptions out{.name = fields.required_text("name")};
  const std::optional<std::string> key = fields.text("key"), sha256 = fields.text("sha256");
  const std::optional<KeyDigest> digest = sha256 ? parse_digest(*sha256) : std::nullopt;
  if (key.has_value() == sha256.has_value() || (key && key->empty())) {
    fields.errors().add("key", "'{}' has to be a string, or '{}' its SHA-256", fields.name_of("key"),
                        fields.name_of("sha256"));
  } else if (sha256 && !digest) {
    fields.errors().add("sha256", "'{}' has to be 64 hexadecimal digits", fields.name_of("sha256"));
  }
  if (key) out.digest = digest_of_key(*key);
  if (digest) out.digest = *digest;
  out.requests_per_minute = static_cast<int>(fields.integer("requests_per_minute", 1, kMaxLimit).value_or(0));
  out.concurrent_requests = static_cast<int>(fields.integer("concurrent_requests", 1, kMaxLimit).value_or(0));
  out.cache_share = fields.number("cache_share").value_or(1);
  if (!(out.cache_share >= 0 && out.cache_share <= 1))
    fields.errors().add("cache_share", "'{}' has to be between 0 and 1", fields.name_of("cache_share"));
  if (out.name.empty()) fields.errors().add("name", "'{}' is empty", fields.name_of("name"));
  return out;
}

void reject_duplicates(const std::vector<ApiKeyOptions>& keys, RequestErrors& errors) {
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (keys[i].name == keys[j].name) errors.add("name", "two keys are named '{}'", keys[i].name);
      if (keys[i].digest == keys[j].digest)
        errors.add("key", "'{}' and '{}' have the same key", keys[j].name, keys[i].name);
    }
  }
}

ApiError too_many(std::string message, double retry_after_s) {
  ApiError error = http_error(429, message);
  error.code = "rate_limit_exceeded";
  error.retry_after_s = std::max(1, static_cast<int>(std::ceil(retry_after_s)));
  return error;
}

}  // namespace

KeyDigest digest_of_key(std::string_view key) {
  KeyDigest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(key.data()), key.size(), digest.data());
  return digest;
}

Result<std::vector<ApiKeyOptions>> parse_api_keys(std::string_view text) {
  ZINC_TRY(parsed, parse_json(text));
  if (!parsed.is_object()) return fail(ErrorCode::invalid_input, "expected a JSON object with 'keys'");
  RequestErrors errors(UnknownFields::reject);
  const FieldReader fields(parsed.get_object(), "", errors);
  fields.check_known({kFileFields});
  std::vector<ApiKeyOptions> out;
  const json::array* keys = fields.array("keys");
  if (keys) {
    for_each_object(*keys, "keys", errors, [&](const FieldReader& key) { out.push_back(read_key(key)); });
  }
  reject_duplicates(out, errors);
  if (errors.any()) return fail(ErrorCode::invalid_input, "{}", errors.first()->message);
  if (out.empty()) return fail(ErrorCode::invalid_input, "'keys' has no key");
  return out;
}

Result<std::vector<ApiKeyOptions>> read_api_keys(const std::filesystem::path& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return fail(ErrorCode::io, "{}: cannot be read", path.string());
  Result<std::vector<ApiKeyOptions>> keys = parse_api_keys(text);
  if (!keys.ok()) return fail(keys.error().code, "{}: {}", path.string(), keys.error().message);
  return keys;
}

void ApiKey::refill(Clock::time_point now) {
  const double capacity = options_.requests_per_minute;
  if (refilled_at_) n_available_ += std::chrono::duration<double>(now - *refilled_at_).count() * capacity / 60;
  n_available_ = std::min(n_available_, capacity);
  refilled_at_ = now;
}

std::variant<std::shared_ptr<void>, ApiError> ApiKey::admit(Clock::time_point now) {
  const int max_running = options_.concurrent_requests;
  if (max_running > 0 && usage_.n_running >= max_running) {
    ++usage_.n_over_concurrency;
    return too_many(fmt::format("'{}' may have {} concurrent requests; wait until one of them has ended", options_.name,
                                max_running),
                    1);
  }
  if (options_.requests_per_minute > 0) {
    refill(now);
    if (n_available_ < 1) {
      ++usage_.n_over_rate;
      const double wait_s = (1 - n_available_) * 60 / options_.requests_per_minute;
      return too_many(fmt::format("'{}' may send {} requests per minute; retry in {:.0f} s", options_.name,
                                  options_.requests_per_minute, std::ceil(wait_s)),
                      wait_s);
    }
    n_available_ -= 1;
  }
  ++usage_.n_requests;
  ++usage_.n_running;
  return std::shared_ptr<void>(nullptr, [self = shared_from_this()](void*) { --self->usage_.n_running; });
}

void ApiKey::count_tokens(int n_prompt, int n_completion) {
  usage_.n_prompt_tokens += static_cast<uint64_t>(n_prompt);
  usage_.n_completion_tokens += static_cast<uint64_t>(n_completion);
}

}  // namespace zinc
