// The arrays a StepInputs points to, filled run by run and used again for every step. They must stay as they are while
// the step is in flight.
#pragma once

#include <span>
#include <vector>

#include "backend/step.h"
#include "cache/kv_cache.h"

namespace zinc {

class StepArrays {
 public:
  explicit StepArrays(size_t n_groups) : pages_(n_groups), tables_(n_groups) {}

  void clear();
  // A run of a sequence's tokens from `begin` on. REQUIRES: it has pages for them.
  void add(const SequenceCache& sequence, int begin, std::span<const TokenId> tokens);
  // What is wanted behind the last token of the run added last: its logits, or the token the device draws.
  void want_logits();
  void want_token(const TokenDraw& draw);
  void want_hidden() { wants_hidden_ = true; }

  StepInputs inputs();  // valid until clear()
  int n_tokens() const { return static_cast<int>(tokens_.size()); }
  int n_sequences() const { return static_cast<int>(slots_.size()); }

 private:
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_begin_ = {0}, slots_, output_rows_, logit_rows_;
  std::vector<const SequenceCache*> sequences_;
  std::vector<std::vector<PageId>> pages_;  // per group
  std::vector<PageTable> tables_;
  std::vector<TokenDraw> draws_;  // one per output row
  bool wants_hidden_ = false, has_draws_ = false;
};

}  // namespace zinc
