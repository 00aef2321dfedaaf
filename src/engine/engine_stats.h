// Statistics of the engine: monotonic counters, gauges, histograms. A snapshot; plain data.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc {

// Counts of values up to each bound, like a Prometheus histogram but not cumulative; one more count for values above
// the last bound.
struct Histogram {
  std::span<const double> bounds;  // of static storage, ascending
  std::vector<uint64_t> counts;    // bounds.size() + 1
  double sum = 0;
  uint64_t n = 0;

  explicit Histogram(std::span<const double> bucket_bounds) : bounds(bucket_bounds), counts(bucket_bounds.size() + 1) {}
  void add(double value);
};

struct PageUse {
  int window = 0;  // of the group; 0: unbounded
  int n_total = 0;
  int n_in_use = 0;  // held by running requests
  int n_cached = 0;  // held only by the prefix cache: evictable
};

// What speculative decoding did in a step without prompt tokens.
enum class DraftDecision : uint8_t {
  drafted,
  no_draft,    // no sequence had a draft: nothing to look up, or the request turned it off
  not_paying,  // drafts would not be kMinDraftSpeedup times as fast
  unmeasured,  // a step without drafts was measured, to compare with
  off,
};
inline constexpr std::array<std::string_view, 5> kDraftDecisionNames = {"drafted", "no_draft", "not_paying",
                                                                        "unmeasured", "off"};

struct SpeculationStats {
  std::array<uint64_t, kDraftDecisionNames.size()> n_steps{};  // without prompt tokens, by DraftDecision
  uint64_t n_drafts = 0;                                       // verified
  uint64_t n_drafted_tokens = 0, n_accepted_tokens = 0;
  double acceptance = 0;         // of the drafter used last, recently
  double predicted_speedup = 1;  // of the last step with a possible draft; below kMinDraftSpeedup nothing is drafted
  double row_cost = 0;           // time of one more row in a decode-only step, as a fraction of the step's
  std::string error = {};        // why the model drafter is not used any more; empty: no error
};

struct EngineStats {
  EngineStats();

  // Gauges.
  int n_waiting = 0, n_prefilling = 0, n_decoding = 0;
  std::vector<PageUse> pages;  // per page group
  // Recurrent-state slots: total, held by running requests, and those with checkpoints.
  int n_states = 0, n_states_in_use = 0, n_states_cached = 0;

  // Requests: accepted, ended (by StopReason), rejected. Every accepted request ends, so both counts are equal when the
  // engine is idle.
  uint64_t n_submitted = 0;
  std::array<uint64_t, 6> n_ended{};
  uint64_t n_rejected = 0;
  uint64_t n_preempted = 0;  // times that a running request was preempted

  // Tokens.
  uint64_t n_prompt_tokens = 0;     // of admitted requests, each counted once
  uint64_t n_cached_tokens = 0;     // of those, found in the prefix cache
  uint64_t n_prefilled_tokens = 0;  // computed in prefill, also again after a preemption
  uint64_t n_generated_tokens = 0;

  SpeculationStats speculation;

  // Prefix cache lookups by CacheMiss; a hit found at least one token.
  std::array<uint64_t, 5> n_lookups{};
  uint64_t n_hits = 0;
  uint64_t n_evicted_pages = 0;

  // Steps.
  uint64_t n_steps = 0;
  Histogram step_s, step_tokens;
  // Requests.
  Histogram time_to_first_token_s, inter_token_s, queue_s, prefill_s, decode_s, e2e_s, prompt_tokens, generated_tokens;
};

}  // namespace zinc
