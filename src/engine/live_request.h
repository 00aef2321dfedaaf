// A request from submit() to its end: what was asked, how far it is, what it holds. Made by the submitting thread,
// then the engine thread's alone.
#pragma once

#include <chrono>
#include <vector>

#include "cache/kv_cache.h"
#include "engine/request.h"

namespace zinc {

using Clock = std::chrono::steady_clock;

struct LiveRequest {
  LiveRequest(Request asked, const Tokenizer& tokenizer)
      : prompt_size(static_cast<int>(asked.prompt.size())),
        answer(tokenizer, std::move(asked.answer), asked.prompt),
        request(std::move(asked)),
        submitted(Clock::now()) {
    request.prompt = {};
  }

  RequestId id = 0;
  int prompt_size;
  int max_length = 0;  // positions it may take
  Answer answer;       // its tokens begin with the prompt
  Request request;     // without prompt and options, which the answer has

  std::optional<uint64_t> refused_at;  // KvCache::n_changes() when there was too little memory for it
  bool is_admitted = false;
  SequenceCache cache;               // of an admitted request
  std::vector<int> checkpoints;      // prompt offsets where it is remembered, ascending
  int n_remembered = 0;              // tokens that the prefix tree has
  std::optional<TokenId> end_token;  // that its answer ended with, where it did
  Usage usage;
  std::vector<float> embedding;  // of the tokens fed so far: their sum, or the last one's
  Clock::time_point submitted, admitted, first_token, last_token;

  std::span<const TokenId> fed() const { return answer.tokens().first(static_cast<size_t>(cache.n_tokens)); }
  // What has been fed once the step is done that was started before its last token was known.
  std::vector<TokenId> fed_ahead() const {
    std::vector<TokenId> tokens(answer.tokens().begin(), answer.tokens().end());
    if (end_token) tokens.push_back(*end_token);
    tokens.resize(static_cast<size_t>(cache.n_tokens) + 1);
    return tokens;
  }
  bool reads_prompt() const { return cache.n_tokens < prompt_size; }
};

}  // namespace zinc
