// Runs a load against a server and says what came of it: closed loop (a number of streams, each asks again when it is
// answered), open loop (requests arrive whether or not earlier ones are answered), and how long streams stand still
// while a long prompt arrives.
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
  std::string model = {};  // `model` of every request; empty: none is named
  size_t n_requests = 64;
  int n_streams = 8;      // at once; closed loop
  double per_second = 0;  // arrivals; above 0: open loop
  // Where each request is sent once more, one after the other, to compare answers and speed: a server that has seen
  // none of them, or what it has cached makes it look fast. Empty: nowhere.
  std::string alone_url = {};
};

struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0, largest = 0;
};
Percentiles percentiles(std::vector<double> values);  // zeros where there are none

// The same requests, one after the other.
struct AloneFigures {
  double tokens_per_s = 0;
  size_t n_equal = 0, n_compared = 0;  // answers equal to those under load, of requests answered both times
};

struct LoadFigures {
  std::string target;
  size_t n_requests = 0, n_failed = 0;
  std::string first_error = {};
  double seconds = 0;
  Percentiles first_token_s = {}, inter_token_s = {}, whole_s = {};
  int64_t n_prompt = 0, n_cached = 0, n_completion = 0;  // tokens
  std::optional<AloneFigures> alone = {};

  double tokens_per_s() const { return seconds > 0 ? static_cast<double>(n_completion) / seconds : 0; }
};

LoadFigures run_load(const LoadPlan& plan, const RequestMix& mix);

struct GapFigures {
  std::string target;
  int n_streams = 0, n_prompt = 0;  // the prompt's tokens, as the server counts them
  Percentiles plain_s = {};         // between pieces of a stream's text, before the prompt came
  Percentiles loaded_s = {};        // and until its first token
  double longest_silence_s = 0;     // of all streams together meanwhile: no token is without text in all of them
  double first_token_s = 0;         // of the prompt

  double ratio() const { return plain_s.p50 > 0 ? loaded_s.largest / plain_s.p50 : 0; }
};

// n_streams are answered, then a prompt of so many words arrives. Fails where the server does not answer them all.
Result<GapFigures> measure_gaps(const LoadPlan& plan, int n_prompt_words);

}  // namespace zinc
