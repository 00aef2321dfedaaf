// A generation request and the sink for its output. Plain data; the engine owns a Request after submit(). The engine
// thread calls the sink: any number of progress(), then any number of tokens(), then end(), exactly once, whatever
// happens. A sink must never block and never call the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "cache/cache_miss.h"
#include "cache/cache_namespace.h"
#include "engine/output_state.h"
#include "engine/speculation_options.h"

namespace zinc {

using RequestId = uint64_t;

enum class Pooling : uint8_t { mean, last };

struct PromptProgress {
  int n_done = 0, n_total = 0;  // tokens; cached ones count as done
  int n_cached = 0;
};

struct Usage {
  int n_prompt = 0;
  int n_cached = 0;  // of the prompt: taken from the prefix cache
  // Of the prompt: found in the prefix cache, usable or not; the token at this index is the first that differs.
  int n_common = 0;
  CacheMiss miss = CacheMiss::none;
  int n_completion = 0;                            // without an end token
  int n_reasoning = 0;                             // of the completion: reasoning
  int n_draft_accepted = 0, n_draft_rejected = 0;  // drafted tokens: in the completion, and not
};

struct Timings {
  double queued_s = 0;   // from submit to admission
  double prefill_s = 0;  // from admission to the first token
  double decode_s = 0;   // from the first token to the end
};

struct Outcome {
  StopReason reason = StopReason::end_token;
  std::string stop_string = {};     // the matched one, for StopReason::stop_string
  std::optional<Error> error = {};  // for StopReason::failed
  Usage usage = {};
  Timings timings = {};
  std::vector<float> embedding = {};  // if requested; normalized to length 1
  // If requested: the prompt's tokens with their log-probabilities; the first token has none (NaN).
  std::vector<OutputToken> prompt_tokens = {};
  std::optional<OutputToken> end_token = {};  // the sampled end token, if log-probabilities were requested
};

class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void progress(const PromptProgress& progress) = 0;
  // Final text in whole characters, may be empty, and the tokens sampled since the last call. A stop string and the
  // text after it never appear in `text`; its tokens do appear in `tokens`. Both are valid during the call only.
  virtual void tokens(std::string_view text, std::span<const OutputToken> tokens) = 0;
  virtual void end(const Outcome& outcome) = 0;
};

struct Request {
  std::vector<TokenId> prompt = {};
  GenerationOptions options = {};    // sampling, stop strings, limits, log-probabilities, thinking
  std::vector<int> boundaries = {};  // prompt offsets where later prompts may diverge: the end of the system prompt, of
                                     // each turn. In any order; offsets out of range are ignored
  std::string client = {};           // for fair scheduling
  CacheNamespace cache_namespace = kSharedNamespace;  // prefixes are shared only within a namespace
  double cache_share = 1;  // of the KV cache, that prefixes of the namespace may keep when the request has ended
  std::optional<SpeculationMode> speculation = {};  // nullopt: the engine's
  std::vector<TokenId> prediction = {};             // the expected output: drafted from, for speculative decoding
  std::optional<Pooling> embedding = {};            // return the prompt's embedding instead of generating
  std::shared_ptr<RequestSink> sink = {};
};

}  // namespace zinc
