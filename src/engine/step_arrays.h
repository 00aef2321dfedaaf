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
  // The output wanted after the last added token: its logits, or a token sampled on the device.
  void request_logits(int n_rows = 1);  // of the last n_rows added tokens
  void request_sampled_token(const DeviceSampling& draw);
  void request_hidden() { wants_hidden_ = true; }

  StepInputs inputs();  // valid until clear()
  int n_tokens() const { return static_cast<int>(tokens_.size()); }
  int n_sequences() const { return static_cast<int>(slots_.size()); }

 private:
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_begin_ = {0}, slots_, output_rows_, logit_rows_;
  std::vector<const SequenceCache*> sequences_;
  std::vector<std::vector<PageId>> pages_;  // per group
  std::vector<PageTable> tables_;
  std::vector<DeviceSampling> sampling_;  // one per output row
  bool wants_hidden_ = false, has_sampling_ = false;
};

}  // namespace zinc
