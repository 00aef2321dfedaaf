#include "backend/gpu/step_class.h"

#include <algorithm>
#include <set>

namespace zinc::gpu {

std::vector<StepClass> step_classes(const Bucket& bucket) {
  std::vector<StepClass> classes;
  // Powers of two, so that no step up to 512 tokens has the grids of double its rows. One token of every sequence is a
  // class of its own: decode of a full batch.
  for (const int n : std::set<int>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, bucket.max_seqs, bucket.max_tokens}) {
    if (n > bucket.max_tokens) continue;
    classes.push_back({n, 1});
    if (const int all = std::min(n, bucket.max_outputs); all > 1) classes.push_back({n, all});
  }
  return classes;
}

size_t find_step_class(const std::vector<StepClass>& classes, size_t n_tokens, size_t n_outputs) {
  const auto found = std::ranges::find_if(classes, [&](const StepClass& c) { return c.fits(n_tokens, n_outputs); });
  ZINC_CHECK(found != classes.end());
  return static_cast<size_t>(found - classes.begin());
}

Bucket bucket_of(const StepClass& sizes, const Bucket& bucket) {
  return {.max_tokens = sizes.max_tokens,
          .max_seqs = std::min(sizes.max_tokens, bucket.max_seqs),
          .max_outputs = sizes.max_outputs,
          .keep_values = bucket.keep_values,
          .time_kernels = bucket.time_kernels};
}

}  // namespace zinc::gpu
