#include "engine/step_arrays.h"

#include <algorithm>

namespace zinc {

void StepArrays::clear() {
  tokens_.clear();
  positions_.clear();
  seq_begin_.assign(1, 0);
  slots_.clear();
  row_slots_.clear();
  rope_scalings_.clear();
  output_rows_.clear();
  logit_rows_.clear();
  sequences_.clear();
  sampling_.clear();
  wants_hidden_ = has_sampling_ = has_row_slots_ = has_rope_scalings_ = false;
}

void StepArrays::add(const SequenceCache& sequence, int begin, std::span<const TokenId> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens_.push_back(tokens[i]);
    positions_.push_back(begin + static_cast<int32_t>(i));
  }
  seq_begin_.push_back(static_cast<int32_t>(tokens_.size()));
  slots_.push_back(sequence.slot);
  rope_scalings_.push_back(sequence.rope_scaling);
  has_rope_scalings_ |= sequence.rope_scaling > 0;
  row_slots_.resize(tokens_.size(), kNoSlot);
  row_slots_.back() = sequence.slot;
  sequences_.push_back(&sequence);
}

void StepArrays::add_verification(const SequenceCache& sequence, int begin, std::span<const TokenId> tokens) {
  add(sequence, begin, tokens);
  if (tokens.size() == 1 || sequence.draft_slots.empty()) return;
  ZINC_CHECK(sequence.draft_slots.size() + 1 >= tokens.size());
  int32_t* slots = row_slots_.data() + row_slots_.size() - tokens.size();
  slots[0] = sequence.slot;
  std::copy_n(sequence.draft_slots.begin(), tokens.size() - 1, slots + 1);
  has_row_slots_ = true;
}

void StepArrays::request_logits(int n_rows) {
  for (int row = static_cast<int>(tokens_.size()) - n_rows; row < static_cast<int>(tokens_.size()); ++row) {
    logit_rows_.push_back(static_cast<int32_t>(output_rows_.size()));
    output_rows_.push_back(row);
    sampling_.emplace_back();  // the device's sampled token is ignored
  }
}

void StepArrays::request_greedy_token() {
  output_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
  sampling_.emplace_back();
}

void StepArrays::request_sampled_tokens(std::span<const DeviceSampling> draws) {
  for (size_t row = tokens_.size() - draws.size(); row < tokens_.size(); ++row) {
    output_rows_.push_back(static_cast<int32_t>(row));
  }
  sampling_.insert(sampling_.end(), draws.begin(), draws.end());
  has_sampling_ = true;
}

StepInputs StepArrays::inputs() {
  for (size_t g = 0; g < pages_.size(); ++g) {
    size_t stride = 0;
    for (const SequenceCache* sequence : sequences_) stride = std::max(stride, sequence->pages[g].size());
    pages_[g].assign(stride * sequences_.size(), kNoPage);
    for (size_t s = 0; s < sequences_.size(); ++s) {
      std::ranges::copy(sequences_[s]->pages[g], pages_[g].begin() + static_cast<ptrdiff_t>(s * stride));
    }
    tables_[g] = {pages_[g], static_cast<int>(stride)};
  }
  return {.tokens = tokens_,
          .positions = positions_,
          .seq_begin = seq_begin_,
          .slots = slots_,
          .row_slots = has_row_slots_ ? std::span<const int32_t>(row_slots_) : std::span<const int32_t>(),
          .rope_scalings = has_rope_scalings_ ? std::span<const int32_t>(rope_scalings_) : std::span<const int32_t>(),
          .page_tables = tables_,
          .output_rows = output_rows_,
          .sampling = has_sampling_ ? std::span<const DeviceSampling>(sampling_) : std::span<const DeviceSampling>(),
          .logit_rows = logit_rows_,
          .hidden = {},
          .wants_hidden = wants_hidden_};
}

}  // namespace zinc
