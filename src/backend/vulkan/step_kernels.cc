#include "backend/gpu/step_layout.h"
#include "backend/vulkan/lowering.h"

namespace zinc::vulkan {

// The H200 of NVIDIA's driver, with the peaks of its data sheet.
Result<StepKernels> step_kernels(std::string_view name, const Graph& graph, const BatchShape& step) {
  if (!name.empty() && name != "h200") {
    return fail(ErrorCode::invalid_input, "unknown GPU '{}'; known: vulkan:h200", name);
  }
  Capabilities h200;
  h200.name = "H200, Vulkan";
  h200.vendor_id = 0x10DE;
  h200.n_multiprocessors = 132;
  h200.coopmat_k = 32;
  h200.has_coopmat_f16 = true;
  h200.shared_bytes = 48 << 10;
  constexpr RooflinePeaks kPeaks{4.8e12, 1979e12};
  ZINC_TRY(layout, gpu::StepLayout::make(graph, step, kernel_formats()));
  ZINC_TRY(workspace,
           Workspace::allocate(graph, *layout->weights, *layout->cache, layout->device, h200, layout->bucket));
  ZINC_TRY(program, Lowering(graph, *layout->weights, *layout->cache, h200, true, *workspace).run());
  gpu::KernelLister lister(graph, workspace->uses(), cost_graph(graph, step, kPeaks));
  for (const Dispatch& dispatch : program.dispatches) {
    lister.add(dispatch.call, {dispatch.kernel.module, gpu::grid_text(dispatch.grid) + " workgroups"});
  }
  return lister.finish(h200.name);
}

}  // namespace zinc::vulkan
