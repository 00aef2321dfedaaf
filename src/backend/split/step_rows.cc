#include "backend/split/step_rows.h"

namespace zinc::split {

void StepRows::clear() {
  rows_.clear();
  positions_.clear();
  seq_begin_.assign(1, 0);
  slots_.clear();
  rope_scalings_.clear();
  tokens_.clear();
  seqs_.clear();
}

void StepRows::add(const StepInputs& step, size_t s, int32_t begin, int32_t end) {
  if (begin >= end) return;
  for (int32_t row = begin; row < end; ++row) {
    rows_.push_back(row);
    positions_.push_back(step.positions[static_cast<size_t>(row)]);
    tokens_.push_back(step.tokens[static_cast<size_t>(row)]);
  }
  seq_begin_.push_back(static_cast<int32_t>(rows_.size()));
  slots_.push_back(step.slots[s]);
  if (!step.rope_scalings.empty()) rope_scalings_.push_back(step.rope_scalings[s]);
  seqs_.push_back(s);
}

StepInputs StepRows::inputs(const StepInputs& step, std::span<const PageTable> page_tables,
                            std::span<const float> hidden) {
  pages_.resize(page_tables.size());
  page_tables_.clear();
  for (size_t g = 0; g < page_tables.size(); ++g) {
    const size_t stride = static_cast<size_t>(page_tables[g].stride);
    pages_[g].clear();
    for (const size_t s : seqs_) {
      const std::span<const PageId> of_sequence = page_tables[g].entries.subspan(s * stride, stride);
      pages_[g].insert(pages_[g].end(), of_sequence.begin(), of_sequence.end());
    }
    page_tables_.push_back({pages_[g], page_tables[g].stride});
  }
  StepInputs out = step;
  out.tokens = tokens_;
  out.positions = positions_;
  out.seq_begin = seq_begin_;
  out.slots = slots_;
  out.row_slots = {};
  out.rope_scalings = rope_scalings_;
  out.page_tables = page_tables_;
  out.output_rows = {};
  out.sampling = {};
  out.logit_rows = {};
  out.hidden = hidden;
  out.wants_hidden = true;
  return out;
}

RowRange whole_chunks(const StepInputs& step, size_t s, int chunk_tokens) {
  const int32_t begin = step.seq_begin[s], n = step.seq_begin[s + 1] - begin;
  if (step.positions[static_cast<size_t>(begin)] % chunk_tokens != 0) return {begin, begin};
  return {begin, begin + n - n % chunk_tokens};
}

}  // namespace zinc::split
