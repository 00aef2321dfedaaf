#include "engine/step_arrays.h"

#include <algorithm>

namespace zinc {

void StepArrays::clear() {
  tokens_.clear();
  positions_.clear();
  seq_begin_.assign(1, 0);
  slots_.clear();
  output_rows_.clear();
  logit_rows_.clear();
  sequences_.clear();
  sampling_.clear();
  wants_hidden_ = has_sampling_ = false;
}

void StepArrays::add(const SequenceCache& sequence, int begin, std::span<const TokenId> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens_.push_back(tokens[i]);
    positions_.push_back(begin + static_cast<int32_t>(i));
  }
  seq_begin_.push_back(static_cast<int32_t>(tokens_.size()));
  slots_.push_back(sequence.slot);
  sequences_.push_back(&sequence);
}

void StepArrays::request_logits(int n_rows) {
  for (int row = static_cast<int>(tokens_.size()) - n_rows; row < static_cast<int>(tokens_.size()); ++row) {
    logit_rows_.push_back(static_cast<int32_t>(output_rows_.size()));
    output_rows_.push_back(row);
    sampling_.emplace_back();  // the device's sampled token is ignored
  }
}

void StepArrays::request_sampled_token(const DeviceSampling& draw) {
  output_rows_.push_back(static_cast<int32_t>(tokens_.size()) - 1);
  sampling_.push_back(draw);
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
          .page_tables = tables_,
          .output_rows = output_rows_,
          .sampling = has_sampling_ ? std::span<const DeviceSampling>(sampling_) : std::span<const DeviceSampling>(),
          .logit_rows = logit_rows_,
          .hidden = {},
          .wants_hidden = wants_hidden_};
}

}  // namespace zinc
