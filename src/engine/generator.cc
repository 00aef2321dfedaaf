#include "engine/generator.h"

#include <array>
#include <chrono>
#include <optional>

#include "sample/sampler.h"
#include "sample/token_set.h"
#include "text/stream_decoder.h"

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Why the answer is over after its last token, if it is.
std::optional<StopReason> reason_to_stop(const Generation& made, const StreamDecoder& decoder,
                                         const GenerateOptions& options, const Sequence& sequence) {
  if (decoder.stopped()) return StopReason::stop_string;
  if (options.max_tokens > 0 && static_cast<int>(made.tokens.size()) == options.max_tokens) {
    return StopReason::max_tokens;
  }
  if (sequence.position() == sequence.context()) return StopReason::context_full;
  return std::nullopt;
}

TokenSet dry_breakers_of(const SamplingParams& sampling, const Tokenizer& tokenizer) {
  if (sampling.dry_multiplier <= 0) return {};
  return tokens_containing(sampling.dry_breakers, tokenizer.n_vocab(), [&](TokenId id) { return tokenizer.bytes(id); });
}

}  // namespace

std::string_view stop_reason_name(StopReason reason) {
  static constexpr std::array<std::string_view, 5> kNames = {"end_token", "stop_string", "max_tokens", "context_full",
                                                             "cancelled"};
  return kNames[static_cast<size_t>(reason)];
}

Result<Generation> generate(Sequence& sequence, const Tokenizer& tokenizer, std::span<const TokenId> prompt,
                            const GenerateOptions& options, const GenerateHooks& hooks) {
  if (prompt.empty()) return fail(ErrorCode::invalid_input, "the prompt is empty: there is nothing to continue");
  Generation made;
  const auto cancelled = [&] { return hooks.cancelled && hooks.cancelled(); };

  const int n_before = sequence.position();
  const Clock::time_point prompt_start = Clock::now();
  const Result<std::span<const float>> fed = sequence.feed(prompt, cancelled);
  made.prompt_s = seconds_since(prompt_start);
  made.n_prompt_tokens = sequence.position() - n_before;
  if (!fed.ok()) {
    if (fed.error().code != ErrorCode::cancelled) return fed.error();
    made.reason = StopReason::cancelled;
    return made;
  }
  std::vector<float> logits(fed.value().begin(), fed.value().end());

  const Clock::time_point decode_start = Clock::now();
  Sampler sampler;
  const TokenSet breakers = dry_breakers_of(options.sampling, tokenizer);
  StreamDecoder decoder(tokenizer, {.stop = options.stop, .show_control = options.show_control});
  std::vector<TokenId> history(prompt.begin(), prompt.end());
  while (true) {
    if (cancelled()) {
      made.reason = StopReason::cancelled;
      break;
    }
    ZINC_TRY(id, sampler.pick(logits, options.sampling,
                              {.history = history, .position = history.size(), .dry_breakers = &breakers}));
    if (tokenizer.is_end(id)) {
      made.reason = StopReason::end_token;
      break;
    }
    made.tokens.push_back(id);
    history.push_back(id);
    if (const std::string_view text = decoder.push(id); !text.empty()) hooks.text(text);
    if (const std::optional<StopReason> reason = reason_to_stop(made, decoder, options, sequence)) {
      made.reason = *reason;
      break;
    }
    ZINC_TRY(next, sequence.feed({&id, 1}));
    ++made.n_decode_steps;
    logits.assign(next.begin(), next.end());
  }
  if (const std::string_view rest = decoder.finish(); !rest.empty()) hooks.text(rest);
  made.decode_s = seconds_since(decode_start);
  return made;
}

}  // namespace zinc
