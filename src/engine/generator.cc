#include "engine/generator.h"

#include <array>
#include <chrono>

#include "sample/sampler.h"
#include "sample/token_set.h"
#include "text/stream_decoder.h"

namespace zinc {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

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
  made.n_prompt_tokens = static_cast<int>(prompt.size());
  const auto cancelled = [&] { return hooks.cancelled && hooks.cancelled(); };

  const Clock::time_point prompt_start = Clock::now();
  ZINC_TRY(fed, sequence.feed(prompt, cancelled));
  std::vector<float> logits(fed.begin(), fed.end());
  made.prompt_s = seconds_since(prompt_start);

  const Clock::time_point decode_start = Clock::now();
  Sampler sampler;
  TokenSet breakers;
  if (options.sampling.dry_multiplier > 0) {
    breakers = tokens_containing(options.sampling.dry_breakers, tokenizer.n_vocab(),
                                 [&](TokenId id) { return tokenizer.bytes(id); });
  }
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
    if (decoder.stopped()) {
      made.reason = StopReason::stop_string;
      break;
    }
    if (options.max_tokens > 0 && static_cast<int>(made.tokens.size()) == options.max_tokens) {
      made.reason = StopReason::max_tokens;
      break;
    }
    if (sequence.position() == sequence.context()) {
      made.reason = StopReason::context_full;
      break;
    }
    ZINC_TRY(next, sequence.feed({&id, 1}));
    logits.assign(next.begin(), next.end());
  }
  if (const std::string_view rest = decoder.finish(); !rest.empty()) hooks.text(rest);
  made.decode_s = seconds_since(decode_start);
  return made;
}

}  // namespace zinc
