#include "sample/vocab_scan.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <functional>
#include <limits>

#include "base/check.h"
#include "sample/softmax_exp.h"

namespace zinc {
namespace {

constexpr size_t kBlock = 64;  // logits; 152k of them make 2,374 blocks, which select and walk in under 10 us
constexpr float kAbsent = -std::numeric_limits<float>::infinity();

using Block = std::array<float, kBlock>;

size_t n_blocks(size_t n_logits) { return (n_logits + kBlock - 1) / kBlock; }

float block_max(const float* x) {
  Block best;
  for (size_t i = 0; i < kBlock / 2; ++i) {  // NaN never wins
    const float a = x[i] > kAbsent ? x[i] : kAbsent;
    best[i] = x[i + kBlock / 2] > a ? x[i + kBlock / 2] : a;
  }
  for (size_t half = kBlock / 4; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) best[i] = best[i] > best[i + half] ? best[i] : best[i + half];
  }
  return best[0];
}

double block_mass(const float* x, float max, float inv_temperature) {
  Block weight;
  for (size_t i = 0; i < kBlock; ++i) weight[i] = token_weight(logit_distance(x[i], max) * inv_temperature);
  std::array<double, kBlock / 2> sum;
  for (size_t i = 0; i < sum.size(); ++i) sum[i] = double{weight[i]} + double{weight[i + sum.size()]};
  for (size_t half = sum.size() / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sum[i] += sum[i + half];
  }
  return sum[0];
}

// The last block, padded with masked logits.
Block padded_tail(std::span<const float> logits) {
  Block tail;
  tail.fill(kAbsent);
  std::copy(logits.end() - static_cast<ptrdiff_t>(logits.size() % kBlock), logits.end(), tail.begin());
  return tail;
}

}  // namespace

void VocabScan::read(std::span<const float> logits) {
  logits_ = logits;
  block_max_.resize(n_blocks(logits.size()));
  const size_t n_whole = logits.size() / kBlock;
  for (size_t b = 0; b < n_whole; ++b) block_max_[b] = block_max(&logits[b * kBlock]);
  if (n_whole < block_max_.size()) block_max_[n_whole] = block_max(padded_tail(logits).data());

  max_ = kAbsent;
  for (const float m : block_max_) max_ = std::max(max_, m);
  max_ = std::min(max_, FLT_MAX);
}

bool VocabScan::empty() const { return max_ == kAbsent; }

TokenId VocabScan::argmax() const {
  const auto block = static_cast<size_t>(
      std::find_if(block_max_.begin(), block_max_.end(), [&](float m) { return m >= max_; }) - block_max_.begin());
  size_t i = block * kBlock;
  while (!(logits_[i] >= max_)) ++i;
  return static_cast<TokenId>(i);
}

// k blocks whose maximum is v or more contain k logits of v or more.
float VocabScan::top_k_bound(size_t k) {
  ZINC_DCHECK(k >= 1);
  if (k > block_max_.size()) return -FLT_MAX;
  selection_ = block_max_;
  const auto kth = selection_.begin() + static_cast<ptrdiff_t>(k - 1);
  std::nth_element(selection_.begin(), kth, selection_.end(), std::greater<>());
  return std::max(*kth, -FLT_MAX);
}

double VocabScan::mass(float temperature) {
  inv_temperature_ = 1.0f / temperature;
  block_mass_.resize(block_max_.size());
  const size_t n_whole = logits_.size() / kBlock;
  for (size_t b = 0; b < n_whole; ++b) block_mass_[b] = block_mass(&logits_[b * kBlock], max_, inv_temperature_);
  if (n_whole < block_mass_.size()) {
    block_mass_[n_whole] = block_mass(padded_tail(logits_).data(), max_, inv_temperature_);
  }
  double sum = 0.0;
  for (const double m : block_mass_) sum += m;
  return sum;
}

TokenId VocabScan::token_at(double uniform) const {
  double sum = 0.0;
  for (const double m : block_mass_) sum += m;
  const double target = cdf_target(uniform, sum);

  double before = 0.0;
  size_t block = 0;
  while (before + block_mass_[block] <= target) before += block_mass_[block++];
  size_t i = block * kBlock;
  const auto weight = [&] { return token_weight(logit_distance(logits_[i], max_) * inv_temperature_); };
  for (before += weight(); before <= target; before += weight()) ++i;
  return static_cast<TokenId>(i);
}

size_t VocabScan::gather(float threshold, std::span<Candidate> out) const {
  size_t n = 0;
  for (size_t b = 0; b < block_max_.size(); ++b) {
    if (!(block_max_[b] >= threshold)) continue;
    const size_t end = std::min(logits_.size(), (b + 1) * kBlock);
    for (size_t i = b * kBlock; i < end; ++i) {
      out[n] = {logits_[i], static_cast<TokenId>(i)};
      n += logits_[i] >= threshold;  // branch-free: survivors are unpredictable
    }
  }
  return n;
}

}  // namespace zinc
