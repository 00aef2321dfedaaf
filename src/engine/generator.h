// Generates one output for one prompt, on the caller's thread: prefill, sample, decode, until an end token, a stop
// string, a limit or cancellation. Text goes to a callback as it is generated, in whole characters.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/output_state.h"
#include "engine/sequence.h"

namespace zinc {

struct GenerationResult {
  std::vector<TokenId> tokens;  // without an end token
  StopReason reason = StopReason::end_token;
  int n_prompt_tokens = 0;            // prefilled; fewer than the prompt has if cancelled
  int n_decode_steps = 0;             // tokens fed back; the first output token comes from the prompt's last step
  double prompt_s = 0, decode_s = 0;  // prefill; decode
};

struct GenerateHooks {
  std::function<void(std::string_view)> text;  // final text, in whole characters
  std::function<bool()> cancelled;             // polled between steps
  const TraceOptions* trace = nullptr;         // records the request; nullptr: off. Steps: SequenceOptions::trace
};

// REQUIRES: validate(options.sampling, vocabulary) is ok. Fails if the prompt is empty or longer than the context.
Result<GenerationResult> generate(Sequence& sequence, const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                                  const GenerationOptions& options, const GenerateHooks& hooks);

}  // namespace zinc
