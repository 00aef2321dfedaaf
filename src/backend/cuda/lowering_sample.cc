#include "backend/cuda/lowering.h"

namespace zinc::cuda {

Status Lowering::lower_sample(int i) {
  const Node& n = node(i);
  const simt::SampleParams params{.step = workspace_.step(),
                                  .sampling = workspace_.sampling_params(),
                                  .logits = workspace_.floats(n.in[0]),
                                  .chunk_best = workspace_.chunk_best(),
                                  .chunks = workspace_.sample_chunks(),
                                  .chunk_masses = workspace_.chunk_masses(),
                                  .best = workspace_.best().device_ptr<float>(),
                                  .best_id = workspace_.best_id().device_ptr<int>(),
                                  .sampled = workspace_.sampled().device_ptr<int>(),
                                  .vocab = static_cast<int>(width(n.in[0]))};
  const KernelProgram program{"sample", ""};
  if (Status s = emit(program, "sample_parts", params, simt::kSampleSplits, sizes_.max_outputs); !s.ok()) return s;
  Launch rows = Launch::of(nullptr, params, 1);
  rows.threads = simt::kSampleThreads;
  return add(program, "sample_rows", rows, sizes_.max_outputs, 1, 1, 0);
}

}  // namespace zinc::cuda
