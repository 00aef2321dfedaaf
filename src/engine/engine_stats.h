// What the engine has done so far: counters that only grow, gauges, histograms. A snapshot; plain data.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace zinc {

// Counts of values up to each bound, as Prometheus has them, but not cumulative; one more count for what lies above.
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
  int n_cached = 0;  // held by the prefix tree alone: given up when needed
};

struct EngineStats {
  EngineStats();

  // Gauges.
  int n_waiting = 0, n_prefilling = 0, n_decoding = 0;
  std::vector<PageUse> pages;             // per page group
  int n_states = 0, n_states_cached = 0;  // recurrent-state slots: all, and those that hold checkpoints

  // Requests: taken, ended (by StopReason), refused. Those taken end, so where nothing runs or waits both are equal.
  uint64_t n_submitted = 0;
  std::array<uint64_t, 6> n_ended{};
  uint64_t n_refused = 0;

  // Tokens.
  uint64_t n_prompt_tokens = 0;  // of admitted requests
  uint64_t n_cached_tokens = 0;  // of those, from the prefix tree
  uint64_t n_prefilled_tokens = 0;
  uint64_t n_generated_tokens = 0;

  // Prefix lookups by CacheMiss: why not more was found; hits are lookups that found anything.
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
