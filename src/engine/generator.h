// One prompt becomes one answer, on the caller's thread: feed, sample, decode, until an end token, a stop string, a
// limit or the caller's wish. Text leaves through a sink, in whole characters, as it is made.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/answer.h"
#include "engine/sequence.h"

namespace zinc {

struct Generation {
  std::vector<TokenId> tokens;  // an end token not included
  StopReason reason = StopReason::end_token;
  int n_prompt_tokens = 0;  // read; fewer than the prompt has if cancelled there
  int n_decode_steps = 0;   // tokens fed back; the first token of the answer comes out of the prompt's last step
  double prompt_s = 0, decode_s = 0;  // reading the prompt; all that came after it
};

struct GenerateHooks {
  std::function<void(std::string_view)> text;  // final text, never half a character
  std::function<bool()> cancelled;             // asked between steps
};

// REQUIRES: validate(options.sampling, vocabulary) is ok. Fails if the prompt is empty or longer than the context.
Result<Generation> generate(Sequence& sequence, const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                            const AnswerOptions& options, const GenerateHooks& hooks);

}  // namespace zinc
