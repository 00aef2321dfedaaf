// The state of a request from submit() to its end: options, progress, cache. Created by the submitting thread, then
// owned by the engine thread. A request waits, runs, and may be preempted: then it waits again, keeps its output and
// prefills all its tokens so far when it is resumed.
#pragma once

#include <chrono>
#include <vector>

#include "cache/kv_cache.h"
#include "engine/request.h"

namespace zinc {

using Clock = std::chrono::steady_clock;

struct RequestState {
  RequestState(Request submitted_request, const Tokenizer& tokenizer)
      : prompt_size(static_cast<int>(submitted_request.prompt.size())),
        output(tokenizer, std::move(submitted_request.options), submitted_request.prompt),
        request(std::move(submitted_request)),
        submitted(Clock::now()) {
    request.prompt = {};
  }

  RequestId id = 0;
  int prompt_size;
  int max_length = 0;    // positions it may use
  int rope_scaling = 0;  // for them; the cache namespace of `request` is for this one
  OutputState output;    // its tokens start with the prompt
  Request request;       // without prompt and options, which moved to `output`

  std::optional<uint64_t> admission_failed_at;  // KvCache::version() at the last failed admission
  bool is_running = false;                      // else it waits: not yet admitted, or preempted
  SequenceCache cache;                          // while it runs
  int prefill_size = 0;                         // tokens to prefill: the prompt, or all tokens so far if it was resumed
  std::vector<int> checkpoints;      // offsets in the prefill where it is inserted into the prefix cache, ascending
  int n_cached_prefix = 0;           // tokens in the prefix cache
  int scan_chunks_end = 0;           // EngineLoop::scan_chunks_end() of it
  std::vector<TokenId> draft;        // in the step in flight, after the last token
  std::optional<TokenId> end_token;  // the one that ended the output, if any
  int n_progress = 0;                // prompt tokens done, as last reported to the sink
  Usage usage;                       // as of the first admission
  std::vector<OutputToken> prompt_tokens;  // scored so far
  std::vector<float> embedding;            // of the tokens fed so far: their sum, or the last one
  Clock::time_point submitted, admitted, first_token, last_token;  // admitted: the first time

  std::span<const TokenId> fed() const { return output.tokens().first(static_cast<size_t>(cache.n_tokens)); }
  // Tokens fed when the step in flight is done, which has n of them and was started before the last one was known.
  std::vector<TokenId> fed_with_pending(int n) const {
    std::vector<TokenId> tokens(output.tokens().begin(), output.tokens().end());
    if (end_token) tokens.push_back(*end_token);
    tokens.resize(static_cast<size_t>(cache.n_tokens + n));
    return tokens;
  }
  bool was_admitted() const { return admitted != Clock::time_point{}; }
  // Whether log-probabilities of the prompt are requested and not all of them known.
  bool scores_prompt() const {
    return output.n_prompt_logprobs() >= 0 && static_cast<int>(prompt_tokens.size()) < prompt_size;
  }
  // Whether every prompt token has to be computed, cached or not.
  bool needs_whole_prompt() const { return request.embedding == Pooling::mean || scores_prompt(); }
  bool is_prefilling() const { return cache.n_tokens < prefill_size; }
};

}  // namespace zinc
