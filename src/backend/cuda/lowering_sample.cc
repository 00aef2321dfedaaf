#include "backend/cuda/lowering.h"

namespace zinc::cuda {

Status Lowering::lower_sample(int i) {
  const Node& n = node(i);
  const simt::SampleParams params{.step = room_.step(),
                                  .logits = room_.floats(n.in[0]),
                                  .best = room_.best(),
                                  .best_id = room_.best_id(),
                                  .sampled = room_.sampled().as<int>(),
                                  .vocab = static_cast<int>(width(n.in[0]))};
  if (Status s = emit({"moe", ""}, "sample_parts", params, simt::kSampleSplits, sizes_.max_outputs); !s.ok()) return s;
  return emit({"moe", ""}, "sample_rows", params, sizes_.max_outputs);
}

}  // namespace zinc::cuda
