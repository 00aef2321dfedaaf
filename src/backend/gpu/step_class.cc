#include "backend/gpu/step_class.h"

#include <algorithm>
#include <set>

#include "backend/gpu/attention_units.h"

namespace zinc::gpu {
namespace {
constexpr int kMaxBatchTokens = 512;  // above, attention_prefill without work is a small part of a step
}

StepClass class_of(const Bucket& bucket) { return {bucket.max_tokens, bucket.max_outputs, bucket.max_seq_tokens}; }

StepClass class_of(const StepInputs& step) {
  int max_seq_tokens = 0;
  for (size_t s = 0; s < step.slots.size(); ++s) {
    max_seq_tokens = std::max(max_seq_tokens, step.seq_begin[s + 1] - step.seq_begin[s]);
  }
  return {static_cast<int>(step.tokens.size()), static_cast<int>(step.output_rows.size()), max_seq_tokens};
}

bool has_prefill_rows(const StepClass& sizes) {
  return std::min(sizes.max_tokens, sizes.max_seq_tokens) > kMaxSplitTokens;
}

std::vector<StepClass> step_classes(const Bucket& bucket, bool has_batches) {
  std::vector<StepClass> classes;
  // Powers of two, so that no step up to 512 tokens has the grids of double its rows. One token of every sequence is a
  // class of its own: decode of a full batch.
  for (const int n : std::set<int>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, bucket.max_seqs, bucket.max_tokens}) {
    if (n > bucket.max_tokens) continue;
    const int all = std::min(n, bucket.max_outputs);
    const bool is_batch_size = n > kMaxSplitTokens && n <= std::max(kMaxBatchTokens, bucket.max_seqs);
    classes.push_back({n, 1});
    if (has_batches && is_batch_size && all > 1 && bucket.max_seqs > 1) classes.push_back({n, all, kMaxSplitTokens});
    if (all > 1) classes.push_back({n, all});
  }
  return classes;
}

size_t find_step_class(const std::vector<StepClass>& classes, const StepClass& step) {
  const auto found = std::ranges::find_if(classes, [&](const StepClass& c) { return c.fits(step); });
  ZINC_CHECK(found != classes.end());
  return static_cast<size_t>(found - classes.begin());
}

Bucket bucket_of(const StepClass& sizes, const Bucket& bucket) {
  return {.max_tokens = sizes.max_tokens,
          .max_seqs = std::min(sizes.max_tokens, bucket.max_seqs),
          .max_outputs = sizes.max_outputs,
          .max_seq_tokens = std::min(sizes.max_seq_tokens, bucket.max_seq_tokens),
          .n_rope_scalings = bucket.n_rope_scalings,
          .keep_values = bucket.keep_values,
          .time_kernels = bucket.time_kernels};
}

}  // namespace zinc::gpu
