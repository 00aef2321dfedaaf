#include "engine/generator.h"

#include <algorithm>
#include <chrono>

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The device chooses: tokens come from it two steps ahead, and nothing else does.
Status follow(Sequence& sequence, Answer& answer, const AnswerOptions& options, const GenerateHooks& hooks,
              Generation& made) {
  const int begin = sequence.position(), room = sequence.context() - begin;
  const size_t n_before = answer.tokens().size();
  int n_given = 0;
  const auto take = [&](TokenId id) {
    if (hooks.cancelled && hooks.cancelled()) {
      made.reason = StopReason::cancelled;
      return false;
    }
    const Answer::Step step = answer.push(id, n_given++ < room);
    if (!step.text.empty()) hooks.text(step.text);
    if (step.reason) made.reason = *step.reason;
    return !step.reason;
  };
  const int n = options.max_tokens > 0 ? std::min(options.max_tokens, room + 1) : room + 1;
  const Status done =
      sequence.follow(n, take, [&](int k) { return *answer.device_draw(n_before + static_cast<size_t>(k)); });
  made.n_decode_steps = sequence.position() - begin;
  return done;
}

// The host chooses from each step's logits.
Status choose_each(Sequence& sequence, std::span<float> logits, Answer& answer, const GenerateHooks& hooks,
                   Generation& made) {
  Sampler sampler;
  while (!hooks.cancelled || !hooks.cancelled()) {
    ZINC_TRY(step, answer.push(logits, sampler, sequence.position() < sequence.context()));
    if (!step.text.empty()) hooks.text(step.text);
    if (step.reason) {
      made.reason = *step.reason;
      return ok_status();
    }
    ZINC_TRY(next, sequence.feed({&step.id, 1}));
    ++made.n_decode_steps;
    logits = next;
  }
  made.reason = StopReason::cancelled;
  return ok_status();
}

}  // namespace

Result<Generation> generate(Sequence& sequence, const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                            const AnswerOptions& options, const GenerateHooks& hooks) {
  if (prompt.empty()) return fail(ErrorCode::invalid_input, "the prompt is empty: there is nothing to continue");
  Generation made;
  Answer answer(tokenizer, options, prompt);
  const std::optional<TokenDraw> draw =
      sequence.draws_tokens() ? answer.device_draw(prompt.size()) : std::optional<TokenDraw>();

  const int n_before = sequence.position();
  const Clock::time_point prompt_start = Clock::now();
  std::span<float> logits;
  const auto read_prompt = [&]() -> Status {
    if (draw) return sequence.feed_and_draw(prompt, *draw, hooks.cancelled);
    ZINC_TRY(fed, sequence.feed(prompt, hooks.cancelled));
    logits = fed;
    return ok_status();
  };
  const Status read = read_prompt();
  made.prompt_s = seconds_since(prompt_start);
  made.n_prompt_tokens = sequence.position() - n_before;
  if (!read.ok()) {
    if (read.error().code != ErrorCode::cancelled) return read.error();
    made.reason = StopReason::cancelled;
    return made;
  }

  const Clock::time_point decode_start = Clock::now();
  const Status answered =
      draw ? follow(sequence, answer, options, hooks, made) : choose_each(sequence, logits, answer, hooks, made);
  if (!answered.ok()) return answered.error();
  if (const std::string_view rest = answer.finish(); !rest.empty()) hooks.text(rest);
  const std::span<const TokenId> said = answer.tokens().subspan(prompt.size());
  made.tokens.assign(said.begin(), said.end());
  made.decode_s = seconds_since(decode_start);
  return made;
}

}  // namespace zinc
