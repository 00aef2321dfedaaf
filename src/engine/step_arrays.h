// The arrays that a StepInputs points to, filled sequence by sequence and reused for every step. They must not change
// while the step is in flight.
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
  // Tokens of a sequence from position `begin` on. REQUIRES: it has pages for them.
  void add(const SequenceCache& sequence, int begin, std::span<const TokenId> tokens);
  // A verification: the last token and drafted ones after it. The state after row 0 is written to the sequence's slot,
  // that after row i to draft_slots[i - 1]. REQUIRES: also a draft slot for each drafted token, if the model has
  // states.
  void add_verification(const SequenceCache& sequence, int begin, std::span<const TokenId> tokens);
  // The output wanted after the last added tokens: their logits, or tokens sampled on the device.
  void request_logits(int n_rows = 1);                                 // of the last n_rows added tokens
  void request_greedy_token();                                         // the most likely token, after the last one
  void request_sampled_tokens(std::span<const DeviceSampling> draws);  // one for each of the last rows
  void request_sampled_token(const DeviceSampling& draw) { request_sampled_tokens({&draw, 1}); }
  void request_hidden() { wants_hidden_ = true; }

  StepInputs inputs();  // valid until clear()
  int n_tokens() const { return static_cast<int>(tokens_.size()); }
  int n_sequences() const { return static_cast<int>(slots_.size()); }

 private:
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_begin_ = {0}, slots_, row_slots_, rope_scalings_, output_rows_, logit_rows_;
  std::vector<const SequenceCache*> sequences_;
  std::vector<std::vector<PageId>> pages_;  // per group
  std::vector<PageTable> tables_;
  std::vector<DeviceSampling> sampling_;  // one per output row
  bool wants_hidden_ = false, has_sampling_ = false, has_row_slots_ = false, has_rope_scalings_ = false;
};

}  // namespace zinc
