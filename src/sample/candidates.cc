#include "sample/candidates.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <limits>

#include "sample/softmax_exp.h"

namespace zinc {
namespace {

constexpr size_t kBuckets = 512;
constexpr float kWidestSpan = 90.0f;  // logits this far below the largest have weight 0; they share the last bucket
constexpr float kNarrowestSpan = 1e-6f;

bool more_likely(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Bucket of a logit, the most likely ones first. Monotone, so buckets are in order of likelihood.
class Buckets {
 public:
  Buckets(float max, float min)
      : max_(max), scale_((kBuckets - 1) / std::clamp(max - min, kNarrowestSpan, kWidestSpan)) {}

  size_t of(float logit) const {
    const float depth = std::max(max_ - logit, 0.0f) * scale_;  // +infinity is above max_
    return depth < float{kBuckets - 1} ? static_cast<size_t>(depth) : kBuckets - 1;
  }

 private:
  float max_, scale_;
};

}  // namespace

void Candidates::gather(const VocabScan& scan, size_t n_vocab, float threshold) {
  if (buffer_.size() < n_vocab) {  // once: sampling does not allocate
    buffer_.resize(n_vocab);
    weights_.reserve(n_vocab);
    bucket_.reserve(n_vocab);
  }
  n_ = scan.gather(threshold, buffer_);
  max_ = scan.max();
}

void Candidates::keep_top_k(size_t k) {
  if (k >= n_) return;
  weights_.assign(n_, 1.0f);
  keep_prefix(static_cast<double>(k));
}

void Candidates::keep_top_p(float p, double total_mass) {
  compute_weights(1.0f);
  keep_prefix(p * total_mass);
}

void Candidates::keep_above(float threshold) {
  if (threshold > -FLT_MAX) compact({threshold, std::numeric_limits<TokenId>::max()});
}

double Candidates::mass() {
  compute_weights(1.0f);
  double sum = 0.0;
  for (const float weight : weights_) sum += weight;
  return sum;
}

TokenId Candidates::token_at(float temperature, double uniform) {
  compute_weights(temperature);
  double sum = 0.0;
  for (const float weight : weights_) sum += weight;
  const double target = cdf_target(uniform, sum);

  size_t i = 0;
  for (double before = weights_[0]; before <= target; before += weights_[i]) ++i;
  return buffer_[i].token;
}

void Candidates::compute_weights(float temperature) {
  const float inv_temperature = 1.0f / temperature;
  weights_.resize(n_);
  for (size_t i = 0; i < n_; ++i) weights_[i] = token_weight(logit_distance(buffer_[i].logit, max_) * inv_temperature);
}

// Keeps the shortest prefix, in order of likelihood, whose weights_ sum to `target`; at least one token.
void Candidates::keep_prefix(double target) {
  float min = max_;
  for (const Candidate& c : list()) min = std::min(min, c.logit);
  const Buckets buckets(max_, min);
  std::array<double, kBuckets> bucket_sum{};
  for (size_t i = 0; i < n_; ++i) bucket_sum[buckets.of(buffer_[i].logit)] += weights_[i];

  double sum = 0.0;
  size_t boundary = 0;
  while (boundary < kBuckets && sum + bucket_sum[boundary] < target) sum += bucket_sum[boundary++];
  if (boundary == kBuckets) return;

  bucket_.clear();
  for (size_t i = 0; i < n_; ++i) {
    if (buckets.of(buffer_[i].logit) == boundary) bucket_.push_back(i);
  }
  std::sort(bucket_.begin(), bucket_.end(), [&](size_t a, size_t b) { return more_likely(buffer_[a], buffer_[b]); });
  size_t last = bucket_.back();
  for (const size_t i : bucket_) {
    sum += weights_[i];
    if (sum < target) continue;
    last = i;
    break;
  }
  compact(buffer_[last]);
}

void Candidates::compact(Candidate last_kept) {
  size_t n = 0;
  for (size_t i = 0; i < n_; ++i) {
    const Candidate c = buffer_[i];
    buffer_[n] = c;
    n += !more_likely(last_kept, c);
  }
  n_ = n;
}

}  // namespace zinc
