// The state of a request from submit() to its end: options, progress, cache. Created by the submitting thread, then
// owned by the engine thread.
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
  int max_length = 0;  // positions it may use
  OutputState output;  // its tokens start with the prompt
  Request request;     // without prompt and options, which moved to `output`

  std::optional<uint64_t> admission_failed_at;  // KvCache::version() at the last failed admission
  bool is_admitted = false;
  SequenceCache cache;               // once admitted
  std::vector<int> checkpoints;      // prompt offsets where it is inserted into the prefix cache, ascending
  int n_cached_prefix = 0;           // tokens in the prefix cache
  std::optional<TokenId> end_token;  // the one that ended the output, if any
  Usage usage;
  std::vector<OutputToken> prompt_tokens;  // scored so far
  std::vector<float> embedding;            // of the tokens fed so far: their sum, or the last one
  Clock::time_point submitted, admitted, first_token, last_token;

  std::span<const TokenId> fed() const { return output.tokens().first(static_cast<size_t>(cache.n_tokens)); }
  // Tokens fed when the step in flight is done, which was started before its last token was known.
  std::vector<TokenId> fed_with_pending() const {
    std::vector<TokenId> tokens(output.tokens().begin(), output.tokens().end());
    if (end_token) tokens.push_back(*end_token);
    tokens.resize(static_cast<size_t>(cache.n_tokens) + 1);
    return tokens;
  }
  bool scores_prompt() const { return output.n_prompt_logprobs() >= 0; }
  // Whether every prompt token has to be computed, cached or not.
  bool needs_whole_prompt() const { return request.embedding == Pooling::mean || scores_prompt(); }
  bool is_prefilling() const { return cache.n_tokens < prompt_size; }
};

}  // namespace zinc
