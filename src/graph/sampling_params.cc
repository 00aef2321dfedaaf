#include "graph/sampling_params.h"

#include <variant>

#include "graph/sampling_fields.h"

namespace zinc {
namespace {

Status check_field(const SamplingField& field, float value) {
  const float low = static_cast<float>(field.low), high = static_cast<float>(field.high);
  const bool inside = value >= low && value <= high;  // false for NaN
  if (inside) return ok_status();
  return fail(ErrorCode::invalid_input, "{} is {}; expected a number from {} to {}", field.name, value, low, high);
}

Status check_field(const SamplingField& field, int32_t value) {
  if (value < field.low) {
    return fail(ErrorCode::invalid_input, "{} is {}; expected {} or more ({})", field.name, value, field.low,
                field.meaning);
  }
  if (value <= field.high) return ok_status();
  return fail(ErrorCode::invalid_input, "{} is {}; expected at most {} ({})", field.name, value, field.high,
              field.meaning);
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
  for (const SamplingField& field : sampling_fields()) {
    ZINC_TRY(checked, std::visit([&](auto member) { return check_field(field, params.*member); }, field.member));
  }
  ZINC_TRY(breakers, check_dry_breakers(params));
  return check_logit_bias(params, n_vocab);
}

}  // namespace zinc
