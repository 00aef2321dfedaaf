#include "engine/step_pacer.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace zinc {
namespace {

constexpr int kFirstTokens = 16;   // read before anything is known
constexpr int kShortPrompt = 512;  // tokens
constexpr double kBriefly = 1.5;   // how much longer steps are that read short prompts only
constexpr int kGrowth = 4;         // from one step to the next: a wrong fit must not cost a long step
constexpr int kFreshSteps = 32;    // after so many, what a plain step takes is measured again
// Reading a cache of some depth is taken to cost as much as the attention of so many tokens over it. Seen on two cores
// at 7,000 positions: next to nothing (one token takes 5.2 ms, 16 take 5.1 each). A number on the high side makes steps
// deep in a prompt longer, one too low reads it a token at a time where reading does weigh.
constexpr double kReadTokens = 4;
constexpr double kNewest = 0.2;       // weight of a new plain step's time
constexpr double kForgetting = 0.95;  // of older observations, per step

size_t size_class(int n_decode, size_t n_classes) {
  return std::min(static_cast<size_t>(std::bit_width(static_cast<unsigned>(n_decode))) - 1, n_classes - 1);
}

}  // namespace

// On the line through what was seen of this many rows and the nearest other number on that side, or on the other one:
// steps grow with their rows, and what is taken for too short makes prompts look dear.
double StepPacer::plain_step_s(int n_decode) const {
  const size_t own = size_class(n_decode, plain_.size());
  const Plain& here = plain_[own];
  if (here.seconds == 0) return 0;
  const auto is_seen = [](const Plain& plain) { return plain.seconds > 0; };
  const auto above = std::find_if(plain_.begin() + static_cast<ptrdiff_t>(own) + 1, plain_.end(), is_seen);
  const auto below = std::find_if(plain_.rend() - static_cast<ptrdiff_t>(own), plain_.rend(), is_seen);
  const bool has_above = above != plain_.end(), has_below = below != plain_.rend();
  if (!has_above && !has_below) return here.seconds;
  const bool upwards = has_above && (n_decode > here.n_rows || !has_below);
  const Plain& other = upwards ? *above : *below;
  const double slope = std::max(0.0, (other.seconds - here.seconds) / (other.n_rows - here.n_rows));
  return std::max(here.seconds + slope * (n_decode - here.n_rows), 0.5 * here.seconds);
}

std::optional<StepPacer::Cost> StepPacer::cost() const {
  if (nn_ <= 0) return std::nullopt;
  Cost cost;
  const double determinant = nn_ * dd_ - nd_ * nd_;
  if (determinant > 1e-6 * nn_ * dd_) {
    cost.per_token = (ns_ * dd_ - ds_ * nd_) / determinant;
    cost.per_depth = (nn_ * ds_ - nd_ * ns_) / determinant;
  }
  if (determinant <= 1e-6 * nn_ * dd_ || cost.per_depth < 0) cost = {.per_token = ns_ / nn_, .per_depth = 0};
  if (cost.per_token < 0) cost = {.per_token = 0, .per_depth = ds_ / dd_};
  return cost;
}

int StepPacer::allowance(int n_decode, int depth, int longest) const {
  if (n_decode == 0) return max_tokens_;
  const double plain_s = plain_step_s(n_decode);
  if (plain_s == 0 || n_since_plain_ >= kFreshSteps) return 0;
  const std::optional<Cost> known = cost();
  if (!known) return std::min(kFirstTokens, max_tokens_);
  const double per_token = known->per_token + known->per_depth * depth;
  // Where reading the cache alone takes too long, a step is worth at least as many tokens as it takes as long again.
  const double reading = kReadTokens * known->per_depth * depth;
  const double gap = longest <= kShortPrompt ? kBriefly * longest_gap_ : longest_gap_;
  const double allowed = std::max((gap - 1) * plain_s, 2 * reading);
  const double tokens = per_token > 0 ? (allowed - reading) / per_token : max_tokens_;
  const int most = std::min(max_tokens_, kGrowth * std::max(kFirstTokens, last_read_));
  return std::clamp(static_cast<int>(std::min<double>(tokens, most)), 1, most);
}

void StepPacer::observe(const StepShape& shape, double seconds) {
  if (shape.n_prefill == 0) {
    if (shape.n_decode == 0) return;
    n_since_plain_ = 0;
    Plain& plain = plain_[size_class(shape.n_decode, plain_.size())];
    const double weight = plain.seconds > 0 ? kNewest : 1;
    plain.seconds += weight * (seconds - plain.seconds);
    plain.n_rows += weight * (shape.n_decode - plain.n_rows);
    return;
  }
  if (shape.n_decode > 0) {
    last_read_ = shape.n_prefill;
    ++n_since_plain_;
    const double plain_s = plain_step_s(shape.n_decode);
    if (plain_s == 0) return;
    seconds = std::max(0.0, seconds - plain_s);
  }
  // Beside a few tokens a step's own jitter weighs more than they do.
  const double weight = std::min(1.0, shape.n_prefill / double{kFirstTokens});
  const double d = (shape.depth_sum + kReadTokens * shape.read_depth) / shape.n_prefill;
  const double s = seconds / shape.n_prefill;
  for (double* sum : {&nn_, &nd_, &dd_, &ns_, &ds_}) *sum *= kForgetting;
  nn_ += weight;
  nd_ += weight * d;
  dd_ += weight * d * d;
  ns_ += weight * s;
  ds_ += weight * d * s;
}

}  // namespace zinc
