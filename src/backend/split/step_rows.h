// Some rows of a step as a step of their own, for a stage that computes every row by itself: without outputs and
// recurrent states.
#pragma once

#include <vector>

#include "backend/step.h"

namespace zinc::split {

class StepRows {
 public:
  void clear();
  // Rows begin .. end - 1 of the step, which are of sequence `s`. Ascending.
  void add(const StepInputs& step, size_t s, int32_t begin, int32_t end);
  bool empty() const { return rows_.empty(); }
  size_t size() const { return rows_.size(); }
  std::span<const int32_t> rows() const { return rows_; }  // of the step

  // With these page tables of the whole step and the rows' hidden states. Valid until the next call.
  StepInputs inputs(const StepInputs& step, std::span<const PageTable> page_tables, std::span<const float> hidden);

 private:
  std::vector<int32_t> rows_, positions_, seq_begin_ = {0}, slots_, rope_scalings_;
  std::vector<TokenId> tokens_;
  std::vector<size_t> seqs_;  // of the step
  std::vector<std::vector<PageId>> pages_;
  std::vector<PageTable> page_tables_;
};

// A sequence's rows of the whole chunks of `chunk_tokens` positions, counted from its start, that the step has from
// the sequence's first row on.
struct RowRange {
  int32_t begin = 0, end = 0;
};
RowRange whole_chunks(const StepInputs& step, size_t s, int chunk_tokens);

}  // namespace zinc::split
