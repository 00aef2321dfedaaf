#include "backend/step.h"

#include "base/check.h"

namespace zinc {

bool has_row_states(const StepInputs& step, size_t s) {
  if (step.row_slots.empty()) return false;
  for (size_t row = static_cast<size_t>(step.seq_begin[s]); row < static_cast<size_t>(step.seq_begin[s + 1]); ++row) {
    const bool is_last = row + 1 == static_cast<size_t>(step.seq_begin[s + 1]);
    if (step.row_slots[row] != (is_last ? step.slots[s] : kNoSlot)) return true;
  }
  return false;
}

bool has_row_states(const StepInputs& step) {
  for (size_t s = 0; s < step.slots.size(); ++s) {
    if (has_row_states(step, s)) return true;
  }
  return false;
}

void check_row_slots(const StepInputs& step) {
  if (step.row_slots.empty()) return;
  ZINC_CHECK(step.row_slots.size() == step.tokens.size());
  for (size_t s = 0; s < step.slots.size(); ++s) {
    const int begin = step.seq_begin[s], end = step.seq_begin[s + 1];
    if (begin == end) continue;
    ZINC_CHECK(step.row_slots[static_cast<size_t>(end) - 1] != kNoSlot);
    ZINC_CHECK((end - begin > 1 && end - begin <= 1 + kMaxDraftTokens) || !has_row_states(step, s));
  }
}

void check_rope_scalings(const StepInputs& step, int n_rope_scalings) {
  ZINC_CHECK(step.rope_scalings.empty() || step.rope_scalings.size() == step.slots.size());
  for (const int32_t scaling : step.rope_scalings) ZINC_CHECK(scaling >= 0 && scaling < n_rope_scalings);
}

}  // namespace zinc
