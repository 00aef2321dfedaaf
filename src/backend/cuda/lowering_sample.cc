#include "backend/cuda/lowering.h"

namespace zinc::cuda {

Status Lowering::lower_sample(int i) {
  const Node& n = node(i);
  const simt::SampleParams params{.step = room_.step(),
                                  .draws = room_.draws(),
                                  .logits = room_.floats(n.in[0]),
                                  .chunk_best = room_.chunk_best(),
                                  .chunks = room_.draw_chunks(),
                                  .chunk_masses = room_.chunk_masses(),
                                  .best = room_.best(),
                                  .best_id = room_.best_id(),
                                  .sampled = room_.sampled().as<int>(),
                                  .vocab = static_cast<int>(width(n.in[0]))};
  const KernelProgram program{"sample", ""};
  if (Status s = emit(program, "sample_parts", params, simt::kSampleSplits, sizes_.max_outputs); !s.ok()) return s;
  Launch rows = Launch::of(nullptr, params, 1);
  rows.threads = simt::kDrawThreads;
  return add(program, "sample_rows", rows, sizes_.max_outputs, 1, 1, 0);
}

}  // namespace zinc::cuda
