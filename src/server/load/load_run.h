// Runs a load test against a server: closed loop (a fixed number of streams, each sends its next request when the last
// is done), open loop (requests arrive independently), and the decode stall caused by the prefill of a long prompt.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/load/load_client.h"
#include "server/load/request_mix.h"

namespace zinc {

struct LoadPlan {
  std::string url, key;
  std::string model = {};  // `model` of every request; empty: not sent
  size_t n_requests = 64;
  int n_streams = 8;      // concurrent streams; closed loop
  double per_second = 0;  // arrivals; above 0: open loop
  // Server to which all requests are sent again sequentially, to compare outputs and speed. It must not have seen them,
  // or its prefix cache makes it look fast. Empty: no comparison.
  std::string baseline_url = {};
};

struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0, largest = 0;
};
Percentiles percentiles(std::vector<double> values);  // zeros if there are no values

// The same requests, sent one after the other.
struct SequentialBaseline {
  double tokens_per_s = 0;
  size_t n_equal = 0, n_compared = 0;  // outputs equal to those under load, of requests that succeeded both times
};

struct LoadResult {
  std::string target;
  size_t n_requests = 0, n_failed = 0;
  std::string first_error = {};
  double seconds = 0;
  Percentiles first_token_s = {}, inter_token_s = {}, whole_s = {};
  int64_t n_prompt = 0, n_cached = 0, n_completion = 0;  // tokens
  std::optional<SequentialBaseline> baseline = {};

  double tokens_per_s() const { return seconds > 0 ? static_cast<double>(n_completion) / seconds : 0; }
};

LoadResult run_load(const LoadPlan& plan, const RequestMix& mix);

struct StallResult {
  std::string target;
  int n_streams = 0, n_prompt = 0;  // the prompt's tokens, as the server counts them
  Percentiles baseline_itl_s = {};  // inter-token latency before the prompt arrived
  Percentiles prefill_itl_s = {};   // and from then until its first token
  double longest_stall_s = 0;       // without text on any stream during that time
  double first_token_s = 0;         // of the long prompt

  // The longest stall as a multiple of a decode step. Gaps of single streams do not count: a control token or a part of
  // a character makes no text.
  double ratio() const { return baseline_itl_s.p50 > 0 ? longest_stall_s / baseline_itl_s.p50 : 0; }
};

// Runs n_streams decoding streams, then sends a prompt of `n_prompt_words`. Fails if the server does not serve them
// all.
Result<StallResult> measure_stall(const LoadPlan& plan, int n_prompt_words);

}  // namespace zinc
