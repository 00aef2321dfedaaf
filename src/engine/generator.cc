#include "engine/generator.h"

#include <chrono>

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Result<Generation> generate(Sequence& sequence, const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                            const AnswerOptions& options, const GenerateHooks& hooks) {
  if (prompt.empty()) return fail(ErrorCode::invalid_input, "the prompt is empty: there is nothing to continue");
  Generation made;
  const auto cancelled = [&] { return hooks.cancelled && hooks.cancelled(); };

  const int n_before = sequence.position();
  const Clock::time_point prompt_start = Clock::now();
  const Result<std::span<float>> fed = sequence.feed(prompt, cancelled);
  made.prompt_s = seconds_since(prompt_start);
  made.n_prompt_tokens = sequence.position() - n_before;
  if (!fed.ok()) {
    if (fed.error().code != ErrorCode::cancelled) return fed.error();
    made.reason = StopReason::cancelled;
    return made;
  }
  std::span<float> logits = fed.value();

  const Clock::time_point decode_start = Clock::now();
  Sampler sampler;
  Answer answer(tokenizer, options, prompt);
  while (true) {
    if (cancelled()) {
      made.reason = StopReason::cancelled;
      break;
    }
    ZINC_TRY(step, answer.push(logits, sampler, sequence.position() < sequence.context()));
    if (!step.text.empty()) hooks.text(step.text);
    if (step.reason) {
      made.reason = *step.reason;
      break;
    }
    ZINC_TRY(next, sequence.feed({&step.id, 1}));
    ++made.n_decode_steps;
    logits = next;
  }
  if (const std::string_view rest = answer.finish(); !rest.empty()) hooks.text(rest);
  const std::span<const TokenId> said = answer.tokens().subspan(prompt.size());
  made.tokens.assign(said.begin(), said.end());
  made.decode_s = seconds_since(decode_start);
  return made;
}

}  // namespace zinc
