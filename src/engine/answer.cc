#include "engine/answer.h"

#include <algorithm>
#include <array>
#include <cmath>
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

Answer::Answer(const Tokenizer& tokenizer, AnswerOptions options, std::span<const TokenId> prompt)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      decoder_(tokenizer, {.stop = options_.stop, .show_control = options_.show_control}),
      tokens_(prompt.begin(), prompt.end()),
      n_prompt_(prompt.size()),
      opening_({options_.thinking.opens}),
      closing_({options_.thinking.closes}),
      thinks_(options_.thinking.starts_open && !options_.thinking.closes.empty()) {
  if (options_.form.constraint) form_.emplace(options_.form, tokenizer);
  if (!options_.dry_breakers) options_.dry_breakers = find_dry_breakers(options_.sampling, tokenizer);
}

Result<TokenId> Answer::choose(std::span<float> logits, Sampler& sampler) {
  const ThinkingBudget& thinking = options_.thinking;
  const bool is_out = thinks_ && thinking.max_tokens >= 0 && n_thought_ >= thinking.max_tokens;
  if ((is_out || n_forced_ > 0) && n_forced_ < thinking.when_out.size()) return thinking.when_out[n_forced_++];
  const Draw draw{.history = tokens_,
                  .position = tokens_.size(),
                  .stream = options_.stream,
                  .dry_breakers = options_.dry_breakers.get()};
  return form_ ? choose_in_form(logits, sampler, draw) : sampler.pick(logits, options_.sampling, draw);
}

// Where the most likely token is wanted and allowed, what else is allowed does not matter.
Result<TokenId> Answer::choose_in_form(std::span<float> logits, Sampler& sampler, Draw draw) {
  if (options_.sampling.temperature <= kGreedyTemperature) {
    ZINC_TRY(likely, sampler.pick(logits, options_.sampling, draw));
    ZINC_TRY(is_allowed, form_->allows(likely));
    if (is_allowed) return likely;
  }
  ZINC_TRY(allowed, form_->allowed());
  draw.allowed = allowed;
  Result<TokenId> picked = sampler.pick(logits, options_.sampling, draw);
  if (picked.ok() || std::ranges::none_of(logits, [](float logit) { return std::isfinite(logit); })) return picked;
  return fail(ErrorCode::invalid_input, "no token can be chosen at position {} that the answer's form allows",
              draw.position);
}

// The token that opens a thought is not part of it, the one that closes it is. In a form there are no thoughts,
// whatever its texts say.
void Answer::follow_thought(TokenId id) {
  if (options_.thinking.closes.empty() || (form_ && form_->has_begun())) return;
  if (thinks_) ++n_thought_;
  for (const char byte : tokenizer_.bytes(id)) {
    StopFinder& finder = thinks_ ? closing_ : opening_;
    if (!finder.push(byte)) continue;
    thinks_ = !thinks_;
    if (thinks_) n_forced_ = 0;  // whoever thinks again is told again
    (thinks_ ? closing_ : opening_) = StopFinder({thinks_ ? options_.thinking.closes : options_.thinking.opens});
  }
}

std::optional<TokenDraw> Answer::device_draw(size_t position) const {
  if (options_.n_top_logprobs >= 0 || options_.thinking.max_tokens >= 0 || form_) return std::nullopt;
  return zinc::device_draw(options_.sampling, position, options_.stream);
}

Result<Answer::Step> Answer::push(std::span<float> logits, Sampler& sampler, bool has_room) {
  ZINC_TRY(id, choose(logits, sampler));
  Step step = push(id, has_room);
  if (step.in_answer && form_) {
    ZINC_TRY(is_complete, form_->take(id));
    if (is_complete && step.reason != StopReason::stop_string) step.reason = StopReason::end_token;
  }
  if (step.in_answer && options_.n_top_logprobs >= 0) {
    sampler.logprobs(logits, id, options_.n_top_logprobs, logprobs_);
    last_.logprob = logprobs_.chosen;
    last_.top = logprobs_.top;
  }
  return step;
}

Answer::Step Answer::push(TokenId id, bool has_room) {
  if (tokenizer_.is_end(id) && !options_.ignore_eos) {
    return Step{.id = id, .in_answer = false, .text = {}, .reason = StopReason::end_token};
  }
  last_ = {.id = id};
  tokens_.push_back(id);
  follow_thought(id);
  Step step{.id = id, .text = decoder_.push(id), .reason = {}};
  if (decoder_.stopped()) {
    step.reason = StopReason::stop_string;
  } else if (options_.max_tokens > 0 && n_tokens() == options_.max_tokens) {
    step.reason = StopReason::max_tokens;
  } else if (!has_room) {
    step.reason = StopReason::context_full;
  }
  return step;
}

}  // namespace zinc
