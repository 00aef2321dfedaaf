#include "engine/output_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace zinc {

std::shared_ptr<const TokenSet> find_dry_breakers(const SamplingParams& sampling, const Tokenizer& tokenizer) {
  if (sampling.dry_multiplier <= 0) return nullptr;
  return std::make_shared<const TokenSet>(
      tokens_containing(sampling.dry_breakers, tokenizer.n_vocab(), [&](TokenId id) { return tokenizer.bytes(id); }));
}

std::string_view stop_reason_name(StopReason reason) {
  static constexpr std::array<std::string_view, 6> kNames = {"end_token",    "stop_string", "max_tokens",
                                                             "context_full", "cancelled",   "failed"};
  return kNames[static_cast<size_t>(reason)];
}

OutputState::OutputState(const Tokenizer& tokenizer, GenerationOptions options, std::span<const TokenId> prompt)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      decoder_(tokenizer, {.stop = options_.stop, .show_control = options_.show_control}),
      tokens_(prompt.begin(), prompt.end()),
      n_prompt_(prompt.size()),
      reasoning_(options_.thinking) {
  if (options_.constraint.grammar) constraint_.emplace(options_.constraint, tokenizer, reasoning_);
  if (!options_.dry_breakers) options_.dry_breakers = find_dry_breakers(options_.sampling, tokenizer);
}

Result<TokenId> OutputState::sample(std::span<float> logits, Sampler& sampler) {
  const ThinkingBudget& thinking = options_.thinking;
  const bool is_exhausted = reasoning_.is_open() && thinking.max_tokens >= 0 && n_reasoning_ >= thinking.max_tokens;
  if ((is_exhausted || n_forced_ > 0) && n_forced_ < thinking.forced_end.size())
    return thinking.forced_end[n_forced_++];
  const SamplingContext context{.history = tokens_,
                                .position = tokens_.size(),
                                .stream = options_.stream,
                                .dry_breakers = options_.dry_breakers.get(),
                                .allowed = options_.allowed_tokens.get()};
  if (constraint_) return sample_constrained(logits, sampler, context);
  if (n_tokens() < options_.min_tokens) return sample_without_end(logits, sampler, context);
  return sampler.sample(logits, options_.sampling, context);
}

// The logits are restored: log-probabilities are those of the model.
Result<TokenId> OutputState::sample_without_end(std::span<float> logits, Sampler& sampler,
                                                const SamplingContext& context) {
  std::vector<std::pair<size_t, float>> saved;
  const auto rule_out = [&](TokenId id) {
    if (static_cast<size_t>(id) >= logits.size()) return;
    float& logit = logits[static_cast<size_t>(id)];
    saved.emplace_back(static_cast<size_t>(id), logit);
    logit = -std::numeric_limits<float>::infinity();
  };
  for (const TokenId id : tokenizer_.eog_tokens()) rule_out(id);
  for (const TokenId id : options_.stop_tokens) rule_out(id);
  Result<TokenId> sampled = sampler.sample(logits, options_.sampling, context);
  for (auto at = saved.rbegin(); at != saved.rend(); ++at) logits[at->first] = at->second;  // a token may occur twice
  return sampled;
}

bool OutputState::is_stop_token(TokenId id) const {
  return std::ranges::find(options_.stop_tokens, id) != options_.stop_tokens.end();
}

// Greedy sampling: if the most likely token is allowed, the set of all allowed tokens is not needed.
Result<TokenId> OutputState::sample_constrained(std::span<float> logits, Sampler& sampler, SamplingContext context) {
  if (options_.sampling.temperature <= kGreedyTemperature) {
    ZINC_TRY(likely, sampler.sample(logits, options_.sampling, context));
    ZINC_TRY(is_allowed, constraint_->allows(likely));
    if (is_allowed) return likely;
  }
  ZINC_TRY(allowed, constraint_->allowed());
  context.allowed = allowed;
  TokenSet in_both;
  if (options_.allowed_tokens) {
    in_both = *allowed;
    in_both.intersect(*options_.allowed_tokens);
    context.allowed = &in_both;
  }
  Result<TokenId> sampled = sampler.sample(logits, options_.sampling, context);
  if (sampled.ok() || std::ranges::none_of(logits, [](float logit) { return std::isfinite(logit); })) return sampled;
  return fail(ErrorCode::invalid_input, "the output constraint allows no token with a finite logit at position {}",
              context.position);
}

// The token with the opening tag is not counted as reasoning, the token with the closing tag is. Inside a constraint
// there is no reasoning, even if its text contains a tag.
void OutputState::track_reasoning(TokenId id) {
  if (constraint_ && constraint_->has_started()) return;
  if (reasoning_.is_open()) ++n_reasoning_;
  const int n_opened = reasoning_.n_opened();
  reasoning_.push(tokenizer_.bytes(id));
  if (reasoning_.n_opened() > n_opened) n_forced_ = 0;  // a second reasoning block gets the forced end again
}

std::optional<DeviceSampling> OutputState::device_sampling(size_t position) const {
  if (options_.n_top_logprobs >= 0 || options_.thinking.max_tokens >= 0 || constraint_) return std::nullopt;
  if (options_.min_tokens > 0 || options_.allowed_tokens) return std::nullopt;
  if (options_.n_prompt_logprobs >= 0 || options_.prompt_only) return std::nullopt;
  return zinc::device_sampling(options_.sampling, position, options_.stream);
}

Result<OutputState::TokenResult> OutputState::accept(std::span<float> logits, Sampler& sampler, bool can_continue) {
  ZINC_TRY(id, sample(logits, sampler));
  TokenResult result = accept(id, can_continue);
  if (result.is_output && constraint_) {
    ZINC_TRY(is_complete, constraint_->accept(id, reasoning_));
    if (is_complete && result.reason != StopReason::stop_string) result.reason = StopReason::end_token;
  }
  if (options_.n_top_logprobs >= 0) {
    sampler.logprobs(logits, id, options_.n_top_logprobs, logprobs_);
    OutputToken& token = result.is_output ? last_ : end_token_.emplace(OutputToken{.id = id});
    token.logprob = logprobs_.chosen;
    token.top = logprobs_.top;
  }
  return result;
}

OutputState::TokenResult OutputState::accept(TokenId id, bool can_continue) {
  if ((tokenizer_.is_eog(id) && !options_.ignore_eos) || is_stop_token(id)) {
    return TokenResult{.id = id, .is_output = false, .text = {}, .reason = StopReason::end_token};
  }
  last_ = {.id = id};
  tokens_.push_back(id);
  track_reasoning(id);
  TokenResult result{.id = id, .text = decoder_.push(id), .reason = {}};
  if (decoder_.stopped()) {
    result.reason = StopReason::stop_string;
  } else if (options_.max_tokens > 0 && n_tokens() == options_.max_tokens) {
    result.reason = StopReason::max_tokens;
  } else if (!can_continue) {
    result.reason = StopReason::context_full;
  }
  return result;
}

}  // namespace zinc
