// What a client asks of the engine, and where the answer goes. Plain data; a Request belongs to the engine from
// submit() on. The engine thread calls the sink: any number of progress(), then any number of tokens(), then end(),
// exactly once, whatever happens. A sink must never block and never call the engine back.
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
#include "cache/cache_owner.h"
#include "engine/answer.h"

namespace zinc {

using RequestId = uint64_t;

enum class Pooling : uint8_t { mean, last };

struct PromptProgress {
  int n_done = 0, n_total = 0;  // tokens; those from the cache count as done
  int n_cached = 0;
};

struct Usage {
  int n_prompt = 0;
  int n_cached = 0;  // of the prompt: not computed again
  int n_common = 0;  // of the prompt: seen before; the token at this index is the first that differs
  CacheMiss miss = CacheMiss::none;
  int n_completion = 0;  // an end token not included
  int n_reasoning = 0;   // of the completion: thoughts
};

struct Timings {
  double queued_s = 0;   // from submit to admission
  double prefill_s = 0;  // from admission to the first token
  double decode_s = 0;   // from the first token to the end
};

struct Outcome {
  StopReason reason = StopReason::end_token;
  std::string stop_string = {};     // which, for StopReason::stop_string
  std::optional<Error> error = {};  // for StopReason::failed
  Usage usage = {};
  Timings timings = {};
  std::vector<float> embedding = {};  // where wanted; of length 1
};

class RequestSink {
 public:
  virtual ~RequestSink() = default;
  virtual void progress(const PromptProgress& progress) = 0;
  // Text that is final, in whole characters, perhaps none, and the tokens chosen since the last call. A stop string
  // and what follows it never appear in `text`; its tokens do appear among the tokens. Both are valid in the call only.
  virtual void tokens(std::string_view text, std::span<const AnswerToken> tokens) = 0;
  virtual void end(const Outcome& outcome) = 0;
};

struct Request {
  std::vector<TokenId> prompt = {};
  AnswerOptions answer = {};            // sampling, stop strings, limits, log-probabilities, thinking
  std::vector<int> boundaries = {};     // offsets into the prompt where later prompts may part from it: the end of the
                                        // system prompt, of each turn. In any order; those out of range are ignored
  std::string client = {};              // requests of one client share its turns
  CacheOwner cache_owner = kEverybody;  // whose texts it may go on from, and who may go on from its own
  std::optional<Pooling> embedding = {};  // no answer, but the prompt's vector
  std::shared_ptr<RequestSink> sink = {};
};

}  // namespace zinc
