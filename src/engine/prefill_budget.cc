#include "engine/prefill_budget.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace zinc {
namespace {

constexpr int kInitialTokens = 16;         // prompt tokens of the first mixed step
constexpr int kShortPrompt = 512;          // tokens
constexpr double kShortPromptSlack = 1.5;  // factor on max_decode_slowdown for short prompts
// The longest step with short prompts, unless a decode-only step is nearly as long: streams have ten tokens per second,
// which is faster than people read. An H200 prefills 2,048 tokens of an 8B model in 90 ms.
constexpr double kShortPromptStepS = 0.1;
constexpr int kMaxGrowth = 16;                  // of the chunks, at most: limits the damage of a bad fit
constexpr int kMaxStepsWithoutDecodeOnly = 32;  // mixed steps, then a decode-only step is measured again
// Reading the KV cache at some depth is taken to cost as much as the attention of this many tokens over it. Measured on
// two cores at 7,000 positions: almost nothing (one token takes 5.2 ms, 16 take 5.1 each). A value too high makes steps
// deep in a prompt longer; a value too low prefills one token per step where reading is expensive.
constexpr double kCacheReadTokens = 4;
constexpr double kMinSpread = 8;       // tokens, standard deviation of the depths: below, their cost is not fitted
constexpr double kNewestWeight = 0.2;  // weight of a new decode-only step's time
constexpr double kDecay = 0.95;        // of older observations, per step
// The cost of a prompt token in a mixed step, relative to a step without decode rows: chunks grow above the first
// value, shrink below the second.
constexpr double kInefficient = 2, kEfficient = 1.5;
constexpr double kCheaper = 0.9;  // of a token in a chunk of double length, if the length is what makes it cheaper

size_t size_class(int n_decode, size_t n_classes) {
  return std::min(static_cast<size_t>(std::bit_width(static_cast<unsigned>(n_decode))) - 1, n_classes - 1);
}

}  // namespace

// Linear interpolation between this row count's class and the nearest measured class on the same side, or else on the
// other side: step time grows with the rows, and an estimate that is too low makes prompt tokens look expensive.
double PrefillBudget::decode_only_step_s(int n_decode) const {
  const size_t own = size_class(n_decode, decode_only_.size());
  const DecodeOnlyStep& nearest = decode_only_[own];
  if (nearest.seconds == 0) return 0;
  const auto is_measured = [](const DecodeOnlyStep& step) { return step.seconds > 0; };
  const auto above =
      std::find_if(decode_only_.begin() + static_cast<ptrdiff_t>(own) + 1, decode_only_.end(), is_measured);
  const auto below = std::find_if(decode_only_.rend() - static_cast<ptrdiff_t>(own), decode_only_.rend(), is_measured);
  const bool has_above = above != decode_only_.end(), has_below = below != decode_only_.rend();
  if (!has_above && !has_below) return nearest.seconds;
  const bool upwards = has_above && (n_decode > nearest.n_rows || !has_below);
  const DecodeOnlyStep& other = upwards ? *above : *below;
  const double slope = std::max(0.0, (other.seconds - nearest.seconds) / (other.n_rows - nearest.n_rows));
  return std::max(nearest.seconds + slope * (n_decode - nearest.n_rows), 0.5 * nearest.seconds);
}

double PrefillBudget::rough_decode_only_step_s(int n_decode) const {
  if (const double seconds = decode_only_step_s(n_decode); seconds > 0) return seconds;
  for (size_t i = size_class(n_decode, decode_only_.size()); i-- > 0;) {
    const DecodeOnlyStep& fewer = decode_only_[i];
    if (fewer.seconds == 0) continue;
    return fewer.seconds * n_decode / fewer.n_rows < kShortPromptStepS / 2 ? fewer.seconds : 0;
  }
  return 0;
}

void PrefillBudget::Fit::add(double depth, double seconds, double weight) {
  for (double* sum : {&nn, &nd, &dd, &ns, &ds}) *sum *= kDecay;
  nn += weight;
  nd += weight * depth;
  dd += weight * depth * depth;
  ns += weight * seconds;
  ds += weight * depth * seconds;
  max_depth = std::max(max_depth, depth);
}

std::optional<PrefillBudget::Cost> PrefillBudget::Fit::cost() const {
  if (nn <= 0) return std::nullopt;
  Cost cost;
  const double determinant = nn * dd - nd * nd;
  const bool has_slope = determinant > kMinSpread * kMinSpread * nn * nn;
  if (has_slope) {
    cost.per_token = (ns * dd - ds * nd) / determinant;
    cost.per_depth = (nn * ds - nd * ns) / determinant;
  }
  if (!has_slope || cost.per_depth < 0) cost = {.per_token = ns / nn, .per_depth = 0};
  if (cost.per_token < 0) cost = {.per_token = 0, .per_depth = ds / dd};
  return cost;
}

// Compares only at depths for which the cost without decode rows is known. If a longer chunk does not make its tokens
// cheaper, it is the depth that makes them expensive: the known depths end there.
void PrefillBudget::update_min_chunk(int n_prefill, double depth, double seconds_per_token) {
  const std::optional<Cost> alone = prefill_only_.cost();
  if (!alone || depth > 2 * prefill_only_.max_depth) {
    min_chunk_ = 0;
    return;
  }
  const double ratio = seconds_per_token / std::max(alone->per_token + alone->per_depth * depth, 1e-9);
  if (ratio <= kInefficient) {
    prefill_only_.max_depth = std::max(prefill_only_.max_depth, depth);
    shorter_chunk_s_ = 0;
    if (ratio < kEfficient) min_chunk_ = std::min(min_chunk_, n_prefill) * 3 / 4;
  } else if (n_prefill >= min_chunk_) {  // a shorter one is the end of a prompt
    const bool is_cheaper = shorter_chunk_s_ == 0 || seconds_per_token < kCheaper * shorter_chunk_s_;
    if (!is_cheaper) prefill_only_.max_depth = depth / 4;
    min_chunk_ = is_cheaper ? std::min(2 * n_prefill, max_tokens_) : 0;
    shorter_chunk_s_ = is_cheaper ? seconds_per_token : 0;
  }
}

PromptLength PrefillBudget::length_of(int n_prompt) const {
  if (n_prompt <= kShortPrompt) return PromptLength::short_prompt;
  const std::optional<Cost> known = all_.cost();
  const double seconds =
      known ? n_prompt * (known->per_token + known->per_depth * n_prompt / 2) : 2 * kShortPromptStepS;
  return seconds <= kShortPromptStepS ? PromptLength::short_prompt : PromptLength::long_prompt;
}

int PrefillBudget::next_prefill_tokens(int n_decode, int depth, PromptLength length) const {
  if (n_decode == 0) return max_tokens_;
  const bool is_short = length == PromptLength::short_prompt;
  const double decode_only_s = is_short ? rough_decode_only_step_s(n_decode) : decode_only_step_s(n_decode);
  if (decode_only_s == 0 || n_since_decode_only_ >= kMaxStepsWithoutDecodeOnly) return 0;
  const std::optional<Cost> known = all_.cost();
  if (!known) return std::min(kInitialTokens, max_tokens_);
  const double per_token = known->per_token + known->per_depth * depth;
  // If reading the KV cache alone exceeds the limit, prefill as many tokens as take as long as the read.
  const double cache_read_s = kCacheReadTokens * known->per_depth * depth;
  const double step_s = is_short ? std::max(kShortPromptSlack * max_decode_slowdown_ * decode_only_s, kShortPromptStepS)
                                 : max_decode_slowdown_ * decode_only_s;
  const double allowed_s = std::max(step_s - decode_only_s, 2 * cache_read_s);
  const double tokens = per_token > 0 ? (allowed_s - cache_read_s) / per_token : max_tokens_;
  const int limit =
      static_cast<int>(std::min<double>(max_tokens_, kMaxGrowth * std::max<double>(kInitialTokens, recent_chunk_)));
  return std::max(std::clamp(static_cast<int>(std::min<double>(tokens, limit)), 1, limit), min_chunk_);
}

void PrefillBudget::observe(const StepLoad& load, double seconds) {
  if (load.n_prefill == 0) {
    if (load.n_decode == 0) return;
    n_since_decode_only_ = 0;
    DecodeOnlyStep& step = decode_only_[size_class(load.n_decode, decode_only_.size())];
    const double weight = step.seconds > 0 ? kNewestWeight : 1;
    step.seconds += weight * (seconds - step.seconds);
    step.n_rows += weight * (load.n_decode - step.n_rows);
    return;
  }
  recent_chunk_ = std::max<double>(load.n_prefill, kDecay * recent_chunk_);
  if (load.n_decode > 0) {
    ++n_since_decode_only_;
    const double decode_only_s = decode_only_step_s(load.n_decode);
    if (decode_only_s == 0) return;
    seconds = std::max(0.0, seconds - decode_only_s);
  }
  // By tokens: with few of them the step's jitter is larger than their cost, and on a GPU a few take as long as many.
  const double weight = load.n_prefill;
  const double depth = (load.depth_sum + kCacheReadTokens * load.read_depth) / load.n_prefill;
  const double per_token_s = seconds / load.n_prefill;
  all_.add(depth, per_token_s, weight);
  if (load.n_decode > 0) {
    update_min_chunk(load.n_prefill, depth, per_token_s);
  } else if (load.n_prefill >= max_tokens_ / 16) {
    prefill_only_.add(depth, per_token_s, weight);
  }
}

}  // namespace zinc
