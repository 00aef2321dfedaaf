// The output of one sequence: samples tokens from logits, detokenizes them and detects the end. One per sequence, one
// thread; no device, no clock. The output is a function of the prompt, the options and the logits only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/output_constraint.h"
#include "engine/reasoning_tracker.h"
#include "graph/sampling_params.h"
#include "sample/sampler.h"
#include "sample/token_set.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace zinc {

enum class StopReason : uint8_t { end_token, stop_string, max_tokens, context_full, cancelled, failed };
std::string_view stop_reason_name(StopReason reason);  // "end_token"

struct GenerationOptions {
  SamplingParams sampling = {};
  int max_tokens = 0;  // 0: until the context is full
  int min_tokens = 0;  // no end token or stop token is sampled before, unless a constraint requires it
  std::vector<std::string> stop = {};
  std::vector<TokenId> stop_tokens = {};  // end the output like end tokens, also with ignore_eos
  bool show_control = false;              // emit the text of control tokens
  bool ignore_eos = false;                // end tokens do not end the output
  int n_top_logprobs = -1;                // alternatives per token; 0: the token's own only, -1: no log-probabilities
  int n_prompt_logprobs = -1;  // the same for the prompt's tokens; the prompt is computed in full, cached or not
  bool prompt_only = false;    // nothing is generated
  uint64_t stream = 0;         // random stream: separates several outputs of one request that share a seed
  ThinkingBudget thinking = {};
  OutputConstraint constraint = {};
  std::shared_ptr<const TokenSet> allowed_tokens = {};  // no other token is sampled; nullptr: all are allowed
  // Tokens that contain a DRY sequence breaker, if known already; the outputs of one request share the set.
  std::shared_ptr<const TokenSet> dry_breakers = {};
};
// Scans the whole vocabulary. nullptr: DRY is off.
std::shared_ptr<const TokenSet> find_dry_breakers(const SamplingParams& sampling, const Tokenizer& tokenizer);

// An output token with the model's own log-probabilities.
struct OutputToken {
  TokenId id = 0;
  float logprob = 0;                   // natural logarithm; 0 if not requested
  std::vector<TokenLogprob> top = {};  // most likely first
};

class OutputState {
 public:
  // Finds the DRY breakers unless the options already have them. REQUIRES: validate(options.sampling, vocabulary) is
  // ok; the prompt is not empty.
  OutputState(const Tokenizer& tokenizer, GenerationOptions options, std::span<const TokenId> prompt);

  struct TokenResult {
    TokenId id = 0;                    // the next token; feed it to the model unless `reason` is set
    bool is_output = true;             // false: an end token, which is not part of the output
    std::string_view text;             // final text, may be empty; valid until the next call
    std::optional<StopReason> reason;  // set: the output has ended; end_token also when the constraint is complete
  };
  // Samples from the logits after the last token; restores them before it returns. `can_continue`: the context has
  // space for another token. REQUIRES: the output has not ended.
  Result<TokenResult> accept(std::span<float> logits, Sampler& sampler, bool can_continue);
  // The same for a token that was sampled already, with device_sampling().
  TokenResult accept(TokenId id, bool can_continue);
  // Parameters for sampling on the device at this position (the prompt's first token has position 0). nullopt: the host
  // has to sample, because of penalties, DRY, a logit bias, log-probabilities, a thinking budget, a minimum length,
  // allowed tokens or a constraint. The same for all positions.
  std::optional<DeviceSampling> device_sampling(size_t position) const;
  bool is_constrained() const { return constraint_.has_value(); }
  // Computes the token mask that the next accept() needs, and keeps it. Optional; a failure shows up in accept().
  void prepare_mask() {
    if (constraint_) static_cast<void>(constraint_->allowed());
  }
  std::string_view finish() { return decoder_.finish(); }  // held-back text; call once, at the end

  std::span<const TokenId> tokens() const { return tokens_; }  // prompt and output, without an end token
  const OutputToken& last() const { return last_; }            // with log-probabilities if requested
  int n_tokens() const { return static_cast<int>(tokens_.size() - n_prompt_); }  // of the output
  int n_tokens_left() const {                                                    // until max_tokens; 0: no limit
    return options_.max_tokens > 0 ? options_.max_tokens - n_tokens() : 0;
  }
  int n_reasoning_tokens() const { return n_reasoning_; }
  int n_prompt_logprobs() const { return options_.n_prompt_logprobs; }
  bool is_prompt_only() const { return options_.prompt_only; }
  // The end token, with log-probabilities, if they were requested and one was sampled.
  const std::optional<OutputToken>& end_token() const { return end_token_; }
  const std::string* stop_string() const { return decoder_.stop_string(); }  // the one that matched

 private:
  Result<TokenId> sample(std::span<float> logits, Sampler& sampler);
  Result<TokenId> sample_without_end(std::span<float> logits, Sampler& sampler, const SamplingContext& context);
  bool is_stop_token(TokenId id) const;
  Result<TokenId> sample_constrained(std::span<float> logits, Sampler& sampler, SamplingContext context);
  void track_reasoning(TokenId id);

  Tokenizer tokenizer_;
  GenerationOptions options_;
  Detokenizer decoder_;
  std::vector<TokenId> tokens_;
  size_t n_prompt_;
  OutputToken last_;
  std::optional<OutputToken> end_token_;
  Logprobs logprobs_;

  ReasoningTracker reasoning_;
  int n_reasoning_ = 0;
  size_t n_forced_ = 0;  // tokens of thinking.forced_end emitted since the reasoning began
  std::optional<ConstraintTracker> constraint_;
};

}  // namespace zinc
