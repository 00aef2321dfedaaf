#include "engine/draft_length.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

namespace zinc {
namespace {

constexpr double kNewestStepWeight = 0.25;  // of a new measurement
constexpr double kMaxOutlier = 2;           // a step counts as at most this multiple of the earlier ones
constexpr uint64_t kMaxAge = 1024;          // steps; an older measurement is dropped and made again
constexpr double kUnmeasuredRow = 0.02;     // of a step's time, per row: low, so that it is measured
constexpr double kMaxAcceptance = 0.99;

}  // namespace

double expected_tokens(double acceptance, int n_drafted) {
  if (acceptance >= 1) return n_drafted + 1;
  return (1 - std::pow(acceptance, n_drafted + 1)) / (1 - acceptance);
}

void StepCost::observe(int n_rows, double seconds) {
  ++n_steps_;
  const auto is_old = [&](const auto& entry) { return n_steps_ - entry.second.step > kMaxAge; };
  std::erase_if(first_, is_old);
  std::erase_if(measured_, is_old);
  if (const auto found = measured_.find(n_rows); found != measured_.end()) {
    Measured& measured = found->second;
    measured.seconds += kNewestStepWeight * (std::min(seconds, kMaxOutlier * measured.seconds) - measured.seconds);
    measured.step = n_steps_;
  } else if (const auto first = first_.find(n_rows); first != first_.end()) {
    measured_[n_rows] = {std::min(seconds, first->second.seconds), n_steps_};
    first_.erase(first);
  } else {
    first_[n_rows] = {seconds, n_steps_};
  }
}

double StepCost::seconds(int n_rows) const {
  if (measured_.empty()) return 0;
  const auto above = measured_.lower_bound(n_rows);
  if (above == measured_.begin()) return above->second.seconds;
  const auto below = std::prev(above);
  if (above == measured_.end()) {
    return below->second.seconds * (1 + kUnmeasuredRow * (n_rows - below->first));
  }
  const double fraction = static_cast<double>(n_rows - below->first) / (above->first - below->first);
  return below->second.seconds + fraction * (above->second.seconds - below->second.seconds);
}

void AcceptanceRate::observe(int n_drafted, int n_accepted) {
  n_accepted_ = n_accepted_ * decay_ + n_accepted;
  n_tried_ = n_tried_ * decay_ + std::min(n_accepted + 1, n_drafted);
}

double AcceptanceRate::rate() const {
  return std::min(kMaxAcceptance, (prior_ * prior_weight_ + n_accepted_) / (prior_weight_ + n_tried_));
}

bool can_drafts_pay(const DraftCost& cost) {
  const double plain_s = cost.steps->seconds(cost.n_rows);
  for (int n = 1; plain_s > 0 && cost.n_rows + n <= cost.max_rows; ++n) {
    const double step_s = cost.steps->seconds(cost.n_rows + n);
    if ((cost.n_rows + kMaxAcceptance * n) * plain_s >= kMinDraftSpeedup * cost.n_rows * step_s) return true;
  }
  return false;
}

// Greedy: rows are added by their probability of being accepted, and the best number of them is kept.
double choose_draft_lengths(std::span<DraftLength> lengths, const DraftCost& cost) {
  for (DraftLength& length : lengths) length.n_tokens = 0;
  const double plain_s = cost.steps->seconds(cost.n_rows);
  if (plain_s <= 0) return 1;
  std::priority_queue<std::pair<double, size_t>> candidates;  // probability of the next token, index
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i].max_tokens > 0) candidates.emplace(lengths[i].acceptance, i);
  }
  std::vector<size_t> added;
  double n_expected = cost.n_rows, best = 1;
  int n_rounds = 0;
  size_t n_best = 0;
  while (!candidates.empty() && cost.n_rows + static_cast<int>(added.size()) < cost.max_rows) {
    const auto [probability, index] = candidates.top();
    candidates.pop();
    DraftLength& length = lengths[index];
    n_expected += probability;
    ++length.n_tokens;
    if (length.n_tokens < length.max_tokens) candidates.emplace(probability * length.acceptance, index);
    if (length.runs_model) n_rounds = std::max(n_rounds, length.n_tokens);
    added.push_back(index);
    const double step_s = cost.steps->seconds(cost.n_rows + static_cast<int>(added.size())) + n_rounds * cost.round_s;
    const double speedup = (n_expected / step_s) / (cost.n_rows / plain_s);
    if (speedup <= best) continue;
    best = speedup;
    n_best = added.size();
  }
  if (best < kMinDraftSpeedup) n_best = 0;
  for (size_t i = n_best; i < added.size(); ++i) --lengths[added[i]].n_tokens;
  return best;
}

}  // namespace zinc
