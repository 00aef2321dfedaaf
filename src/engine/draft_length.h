// The cost model of speculative decoding: how many drafted tokens each sequence of a step verifies. A drafted row costs
// time, which is measured for steps of any number of rows, and yields a token with the probability that it and all
// drafted tokens before it are accepted, which is measured per sequence. Plain numbers in and out; no clock.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace zinc {

// Expected tokens of one verification step: (1 - a^(n+1)) / (1 - a).
double expected_tokens(double acceptance, int n_drafted);

// Seconds of decode-only steps by their number of rows. The first step of a number of rows does not count: it may have
// run with cold caches or in a larger step class.
class StepCost {
 public:
  void observe(int n_rows, double seconds);
  // Interpolated; estimated low for more rows than were measured. 0: nothing is known.
  double seconds(int n_rows) const;
  bool is_known(int n_rows) const { return measured_.contains(n_rows); }  // measured, and not long ago

 private:
  struct Measured {
    double seconds = 0;
    uint64_t step = 0;  // the last one
  };
  std::map<int, Measured> first_, measured_;
  uint64_t n_steps_ = 0;
};

// Fraction of drafted tokens that are accepted, of those whose predecessors were.
class AcceptanceRate {
 public:
  AcceptanceRate(double prior, double prior_weight, double decay)
      : prior_(prior), prior_weight_(prior_weight), decay_(decay) {}
  void observe(int n_drafted, int n_accepted);
  double rate() const;
  double prior() const { return prior_; }

 private:
  double prior_, prior_weight_, decay_;
  double n_accepted_ = 0, n_tried_ = 0;
};

struct DraftLength {
  double acceptance = 0;
  int max_tokens = 0;
  bool runs_model = false;  // its drafter runs a model once per token, for all sequences together
  int n_tokens = 0;         // the result
};

struct DraftCost {
  const StepCost* steps = nullptr;
  double round_s = 0;  // one run of the drafter's model
  int n_rows = 0;      // of the step without drafts: one token each
  int max_rows = 0;    // of the step with drafts
};

inline constexpr double kMinDraftSpeedup =
    1.1;  // below it, drafts are left out: they take memory bandwidth from others
// Whether drafts could be worth it if nearly all drafted tokens were accepted and drafting took no time.
bool can_drafts_pay(const DraftCost& cost);
// Chooses the lengths with the highest expected tokens per second. Returns the speedup over a step without drafts; if
// it is less than kMinDraftSpeedup, all lengths are 0.
double choose_draft_lengths(std::span<DraftLength> lengths, const DraftCost& cost);

}  // namespace zinc
