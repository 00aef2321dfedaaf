#include "graph/sampling_params.h"

#include <limits>
#include <string_view>

namespace zinc {
namespace {

constexpr float kMaxRepeatPenalty = 100.0f;  // far beyond any use; keeps logits finite
constexpr float kMinRepeatPenalty = 0.01f;
constexpr float kMaxDryMultiplier = 1000.0f;
constexpr float kMaxDryBase = 100.0f;
constexpr int32_t kNoLimit = std::numeric_limits<int32_t>::max();

struct FloatRange {
  std::string_view field;
  float value, low, high;
};

struct IntRange {
  std::string_view field;
  int32_t value, low, high;
  std::string_view meaning;  // of the special values
};

Status check_floats(const SamplingParams& p) {
  const FloatRange ranges[] = {
      {"temperature", p.temperature, 0.0f, kMaxTemperature},
      {"top_p", p.top_p, 0.0f, 1.0f},
      {"min_p", p.min_p, 0.0f, 1.0f},
      {"repeat_penalty", p.repeat_penalty, kMinRepeatPenalty, kMaxRepeatPenalty},
      {"frequency_penalty", p.frequency_penalty, -kMaxCountPenalty, kMaxCountPenalty},
      {"presence_penalty", p.presence_penalty, -kMaxCountPenalty, kMaxCountPenalty},
      {"dry_multiplier", p.dry_multiplier, 0.0f, kMaxDryMultiplier},
      {"dry_base", p.dry_base, 1.0f, kMaxDryBase},
  };
  for (const FloatRange& r : ranges) {
    const bool inside = r.value >= r.low && r.value <= r.high;  // false for NaN
    if (!inside) {
      return fail(ErrorCode::invalid_input, "{} is {}; expected a number from {} to {}", r.field, r.value, r.low,
                  r.high);
    }
  }
  return ok_status();
}

Status check_ints(const SamplingParams& p) {
  const IntRange ranges[] = {
      {"top_k", p.top_k, 0, kNoLimit, "0 turns it off"},
      {"repeat_last_n", p.repeat_last_n, kWholeHistory, kNoLimit,
       "0 turns the penalties off, -1 means the whole history"},
      {"dry_allowed_length", p.dry_allowed_length, 1, kMaxDryMatch, "shorter repetitions are not penalized"},
      {"dry_last_n", p.dry_last_n, kWholeHistory, kNoLimit, "0 turns DRY off, -1 means the whole history"},
  };
  for (const IntRange& r : ranges) {
    if (r.value < r.low) {
      return fail(ErrorCode::invalid_input, "{} is {}; expected {} or more ({})", r.field, r.value, r.low, r.meaning);
    }
    if (r.value > r.high) {
      return fail(ErrorCode::invalid_input, "{} is {}; expected at most {} ({})", r.field, r.value, r.high, r.meaning);
    }
  }
  return ok_status();
}

Status check_dry_breakers(const SamplingParams& p) {
  if (p.dry_breakers.size() > kMaxDryBreakers) {
    return fail(ErrorCode::invalid_input, "dry_breakers has {} strings; expected at most {}", p.dry_breakers.size(),
                kMaxDryBreakers);
  }
  for (size_t i = 0; i < p.dry_breakers.size(); ++i) {
    const size_t n_bytes = p.dry_breakers[i].size();
    if (n_bytes == 0 || n_bytes > kMaxDryBreakerBytes) {
      return fail(ErrorCode::invalid_input, "dry_breakers[{}] has {} bytes; expected 1 to {}", i, n_bytes,
                  kMaxDryBreakerBytes);
    }
  }
  return ok_status();
}

Status check_logit_bias(const SamplingParams& p, int32_t n_vocab) {
  if (p.logit_bias.size() > kMaxLogitBiases) {
    return fail(ErrorCode::invalid_input, "logit_bias has {} entries; expected at most {}", p.logit_bias.size(),
                kMaxLogitBiases);
  }
  for (const LogitBias& b : p.logit_bias) {
    if (b.token < 0 || b.token >= n_vocab) {
      return fail(ErrorCode::invalid_input, "logit_bias names token {}; expected 0 to {}, the model's vocabulary",
                  b.token, n_vocab - 1);
    }
    const bool inside = b.bias >= -kMaxLogitBias && b.bias <= kMaxLogitBias;
    if (!inside) {
      return fail(ErrorCode::invalid_input, "logit_bias of token {} is {}; expected a number from {} to {}", b.token,
                  b.bias, -kMaxLogitBias, kMaxLogitBias);
    }
  }
  return ok_status();
}

}  // namespace

Status validate(const SamplingParams& params, int32_t n_vocab) {
  ZINC_TRY(floats, check_floats(params));
  ZINC_TRY(ints, check_ints(params));
  ZINC_TRY(breakers, check_dry_breakers(params));
  return check_logit_bias(params, n_vocab);
}

}  // namespace zinc
