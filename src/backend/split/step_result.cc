#include "backend/split/step_result.h"

namespace zinc::split {

void StepResult::reserve(const Graph& graph, const Bucket& bucket) {
  const size_t n_tokens = static_cast<size_t>(bucket.max_tokens), n_outputs = static_cast<size_t>(bucket.max_outputs);
  const auto floats_of = [&](Value v) { return v ? static_cast<size_t>(graph.info(v).shape.elems()) : 0; };
  sampled.reserve(n_outputs);
  output_slots.reserve(n_outputs);
  logits.reserve(n_outputs * floats_of(graph.logits()));
  hidden.reserve(n_tokens * floats_of(graph.hidden()));
}

void StepResult::begin(const StepInputs& inputs, SplitCache& cache, std::vector<TokenId>& tokens) {
  is_copied = false;
  error.reset();
  output_slots.clear();
  tokens.assign(inputs.tokens.begin(), inputs.tokens.end());
  size_t r = 0;
  for (size_t s = 0; s < inputs.slots.size(); ++s) {
    for (int32_t t = inputs.seq_begin[s]; t < inputs.seq_begin[s + 1]; ++t) {
      if (TokenId& token = tokens[static_cast<size_t>(t)]; token == kFromDevice) {
        token = cache.last_sampled(inputs.slots[s]);
      }
      for (; r < inputs.output_rows.size() && inputs.output_rows[r] == t; ++r) output_slots.push_back(inputs.slots[s]);
    }
  }
}

Result<StepOutput> StepResult::finish(Result<StepOutput> out, SplitCache& cache) {
  if (!out.ok()) {
    error = out.error();
    return out;
  }
  for (size_t r = 0; r < output_slots.size(); ++r) cache.last_sampled(output_slots[r]) = out.value().sampled[r];
  return out;
}

void StepResult::copy(const Result<StepOutput>& out) {
  if (out.ok()) {
    sampled.assign(out.value().sampled.begin(), out.value().sampled.end());
    logits.assign(out.value().logits.begin(), out.value().logits.end());
    hidden.assign(out.value().hidden.begin(), out.value().hidden.end());
  }
  is_copied = true;
}

Result<StepOutput> StepResult::copied() {
  if (error) return *error;
  return StepOutput{sampled, logits, hidden};
}

}  // namespace zinc::split
