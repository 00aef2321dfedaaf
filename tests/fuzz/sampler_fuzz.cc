// Any parameters accepted by validate(), any logits and any history: the sampler returns a usable token if there is
// one, an error otherwise, and does not modify the logits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/check.h"
#include "sample/sampler.h"

namespace {

using namespace zinc;

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  template <class T>
  T take() {  // zeros after the end
    T value{};
    const size_t n = std::min(sizeof(T), size_);
    std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }

  float take_float(float low, float high) {  // within the range, or an arbitrary float
    const auto byte = take<uint8_t>();
    return byte == 255 ? take<float>() : low + (high - low) * static_cast<float>(byte) / 254.0f;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

SamplingParams take_params(Bytes& bytes) {
  SamplingParams p;
  p.temperature = bytes.take_float(0.0f, 2.0f);
  p.top_k = bytes.take<int16_t>();
  p.top_p = bytes.take_float(0.0f, 1.0f);
  p.min_p = bytes.take_float(0.0f, 1.0f);
  p.repeat_penalty = bytes.take_float(0.5f, 2.0f);
  p.frequency_penalty = bytes.take_float(-2.0f, 2.0f);
  p.presence_penalty = bytes.take_float(-2.0f, 2.0f);
  p.repeat_last_n = bytes.take<int8_t>();
  p.dry_multiplier = bytes.take_float(0.0f, 2.0f);
  p.dry_base = bytes.take_float(1.0f, 3.0f);
  p.dry_allowed_length = bytes.take<int8_t>();
  p.dry_last_n = bytes.take<int8_t>();
  for (int n = bytes.take<uint8_t>() % 4; n > 0; --n) {
    p.logit_bias.push_back({bytes.take<int8_t>(), bytes.take_float(-100.0f, 100.0f)});
  }
  p.seed = bytes.take<uint8_t>();
  return p;
}

bool usable(float logit) { return !std::isnan(logit) && logit != -std::numeric_limits<float>::infinity(); }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes(data, size);
  const SamplingParams params = take_params(bytes);
  TokenSet breakers(256);
  breakers.insert(bytes.take<uint8_t>());
  std::vector<TokenId> history(bytes.take<uint8_t>());
  for (TokenId& token : history) token = bytes.take<int8_t>();
  std::vector<float> logits(bytes.take<uint8_t>());
  for (float& logit : logits) logit = bytes.take_float(-20.0f, 20.0f);
  if (!validate(params, static_cast<int32_t>(logits.size())).ok()) return 0;

  static Sampler sampler;
  const std::vector<float> before = logits;
  const auto token = sampler.sample(logits, params, {.history = history, .position = size, .dry_breakers = &breakers});
  ZINC_CHECK(logits.empty() || std::memcmp(logits.data(), before.data(), logits.size() * sizeof(float)) == 0);
  ZINC_CHECK(token.ok() == std::any_of(logits.begin(), logits.end(), usable));
  if (!token.ok()) return 0;
  ZINC_CHECK(token.value() >= 0 && static_cast<size_t>(token.value()) < logits.size());
  ZINC_CHECK(usable(logits[static_cast<size_t>(token.value())]));

  Logprobs logprobs;
  sampler.logprobs(logits, token.value(), 5, logprobs);
  ZINC_CHECK(logprobs.chosen <= 1e-5f);
  ZINC_CHECK(!logprobs.top.empty() && logprobs.top[0].logprob >= logprobs.chosen);
  return 0;
}
