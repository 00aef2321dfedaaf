#include "backend/gpu/step_class.h"

#include <algorithm>

namespace zinc::gpu {

std::vector<StepClass> step_classes(const Bucket& bucket) {
  std::vector<StepClass> classes;
  for (const int n : {1, 4, 8, 32, 128, 512, bucket.max_tokens}) {
    if (n > bucket.max_tokens || (!classes.empty() && n <= classes.back().max_tokens)) continue;
    classes.push_back({n, 1});
    if (const int all = std::min(n, bucket.max_outputs); all > 1) classes.push_back({n, all});
  }
  return classes;
}

size_t find_step_class(const std::vector<StepClass>& classes, size_t n_tokens, size_t n_outputs) {
  const auto found = std::ranges::find_if(classes, [&](const StepClass& c) {
    return n_tokens <= static_cast<size_t>(c.max_tokens) && n_outputs <= static_cast<size_t>(c.max_outputs);
  });
  ZINC_CHECK(found != classes.end());
  return static_cast<size_t>(found - classes.begin());
}

}  // namespace zinc::gpu
