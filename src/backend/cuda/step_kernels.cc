#include <algorithm>
#include <array>

#include "backend/cuda/plan.h"
#include "backend/gpu/step_layout.h"
#include "backend/simt/host/lowering.h"

namespace zinc::cuda {
namespace {

// GPUs whose kernels can be listed without one: limits and, for the matmuls' int8, peaks of their data sheets.
struct KnownGpu {
  std::string_view name;
  DeviceLimits limits;
  RooflinePeaks peaks;
};
std::span<const KnownGpu> known_gpus() {
  static const std::array<KnownGpu, 3> kGpus = {{
      {"h200",
       {.name = "H200", .major = 9, .minor = 0, .n_sms = 132, .max_shared_bytes = 232448, .has_clusters = true},
       {4.8e12, 1979e12}},
      {"a100",
       {.name = "A100", .major = 8, .minor = 0, .n_sms = 108, .max_shared_bytes = 166912, .has_clusters = false},
       {2.0e12, 624e12}},
      {"rtx4090",
       {.name = "RTX 4090", .major = 8, .minor = 9, .n_sms = 128, .max_shared_bytes = 101376, .has_clusters = false},
       {1.0e12, 660e12}},
  }};
  return kGpus;
}

}  // namespace

Result<StepKernels> step_kernels(std::string_view name, const Graph& graph, const BatchShape& step) {
  const auto gpu = std::ranges::find(known_gpus(), name.empty() ? "h200" : name, &KnownGpu::name);
  if (gpu == known_gpus().end()) {
    return fail(ErrorCode::invalid_input, "unknown GPU '{}'; known: cuda:h200, cuda:a100, cuda:rtx4090", name);
  }
  ZINC_TRY(layout, gpu::StepLayout::make(graph, step, kernel_formats()));
  ZINC_TRY(workspace,
           Workspace::allocate(graph, *layout->weights, *layout->cache, layout->device, gpu->limits, layout->bucket));
  ZINC_TRY(calls, simt::host::Lowering(graph, *layout->weights, *layout->cache, gpu->limits, *workspace).run());
  gpu::KernelLister lister(graph, workspace->uses(), cost_graph(graph, step, gpu->peaks));
  for (const KernelCall& call : calls) {
    const Launch& launch = call.launch;
    lister.add(call.call, {(call.kernel + " " + call.program.format),
                           fmt::format("{} blocks of {}", gpu::grid_text(launch.grid), launch.threads)});
  }
  return lister.finish(gpu->limits.name);
}

}  // namespace zinc::cuda
