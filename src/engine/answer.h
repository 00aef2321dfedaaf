// From logits to an answer: chooses tokens, turns them into text, and knows when the answer is over. One per answer,
// one thread; no device, no clock. What comes out is a function of the prompt, the options and the logits alone.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/answer_form.h"
#include "graph/sampling_params.h"
#include "sample/sampler.h"
#include "sample/token_set.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace zinc {

enum class StopReason : uint8_t { end_token, stop_string, max_tokens, context_full, cancelled, failed };
std::string_view stop_reason_name(StopReason reason);  // "end_token"

// How long an answer may think. Thoughts lie between two texts, found in the bytes of the tokens, so that it does not
// matter how the model cuts them.
struct ThinkingBudget {
  std::string opens = {}, closes = {};  // "<think>", "</think>"; empty: thoughts are not told apart
  bool starts_open = false;             // the prompt ended inside the thought
  int max_tokens = -1;                  // of the thought; -1: no limit
  std::vector<TokenId> when_out = {};   // what is said then, in place of what would be chosen; should close the thought
};

struct AnswerOptions {
  SamplingParams sampling = {};
  int max_tokens = 0;  // 0: until the context is full
  std::vector<std::string> stop = {};
  bool show_control = false;  // control tokens say their text
  bool ignore_eos = false;    // end tokens are tokens like others
  int n_top_logprobs = -1;    // alternatives per token; 0: the token's own only, -1: no log-probabilities at all
  uint64_t stream = 0;        // tells apart answers to one prompt that have the same seed
  ThinkingBudget thinking = {};
  AnswerForm form = {};
  // The tokens that hold a DRY breaker, where somebody has found them already: answers to one request share them.
  std::shared_ptr<const TokenSet> dry_breakers = {};
};
// Reads the whole vocabulary. nullptr: DRY is off.
std::shared_ptr<const TokenSet> find_dry_breakers(const SamplingParams& sampling, const Tokenizer& tokenizer);

// A token of the answer and what the model itself thought of it.
struct AnswerToken {
  TokenId id = 0;
  float logprob = 0;                   // natural; 0 where none were asked for
  std::vector<TokenLogprob> top = {};  // most likely first
};

class Answer {
 public:
  // Finds DRY breakers if the options need them and do not have them. REQUIRES: validate(options.sampling, vocabulary)
  // is ok; the prompt is not empty.
  Answer(const Tokenizer& tokenizer, AnswerOptions options, std::span<const TokenId> prompt);

  struct Step {
    TokenId id = 0;                    // what comes next; the model is fed it unless the answer is over
    bool in_answer = true;             // false: an end token, which says nothing
    std::string_view text;             // final text, perhaps none; valid until the next call
    std::optional<StopReason> reason;  // the answer is over; end_token also where its form is complete
  };
  // Takes the logits after the last token; they come back as they were. `has_room`: whether another token could still
  // be fed. REQUIRES: not over.
  Result<Step> push(std::span<float> logits, Sampler& sampler, bool has_room);
  // The same where the token has been chosen already, as device_draw() says.
  Step push(TokenId id, bool has_room);
  // How a device chooses the answer's token at this position (the prompt's first has 0); nullopt: the host has to,
  // because of penalties, DRY, a logit bias, log-probabilities, a limit of thoughts or a form. The same for all
  // positions.
  std::optional<TokenDraw> device_draw(size_t position) const;
  std::string_view finish() { return decoder_.finish(); }  // held-back text; called once, last

  std::span<const TokenId> tokens() const { return tokens_; }  // the prompt and the answer, an end token not included
  const AnswerToken& last() const { return last_; }            // with log-probabilities where asked for
  int n_tokens() const { return static_cast<int>(tokens_.size() - n_prompt_); }  // of the answer
  int n_thought_tokens() const { return n_thought_; }
  const std::string* stop_string() const { return decoder_.stop_string(); }  // what stopped it

 private:
  Result<TokenId> choose(std::span<float> logits, Sampler& sampler);
  Result<TokenId> choose_in_form(std::span<float> logits, Sampler& sampler, Draw draw);
  void follow_thought(TokenId id);

  Tokenizer tokenizer_;
  AnswerOptions options_;
  StreamDecoder decoder_;
  std::vector<TokenId> tokens_;
  size_t n_prompt_;
  AnswerToken last_;
  Logprobs logprobs_;

  StopFinder opening_, closing_;
  bool thinks_;
  int n_thought_ = 0;
  size_t n_forced_ = 0;  // of thinking.when_out, said since the thought began
  std::optional<FormKeeper> form_;
};

}  // namespace zinc
