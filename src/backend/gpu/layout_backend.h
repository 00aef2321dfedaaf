// Backend::without_memory() of a GPU: weights, caches and plans on a LayoutDevice, laid out by the code that allocates
// them.
#pragma once

#include <functional>

#include "backend/gpu/layout_device.h"
#include "backend/gpu/plan_memory.h"

namespace zinc::gpu {

// What differs between GPU backends.
struct LayoutOptions {
  KernelFormats formats;
  size_t staging_bytes = 0;  // of device memory, while weights are uploaded
  struct Model {
    const Graph& graph;
    const Weights& weights;
    const Cache& cache;
  };
  std::function<Result<std::unique_ptr<Workspace>>(const Model& model, Device& device, const Bucket& bucket)>
      make_workspace;
  // Device memory of a prepared step class besides its workspace. Null: none.
  std::function<Result<size_t>(const Model& model, const Workspace& workspace)> class_bytes = {};
  bool has_batch_classes = false;  // batches of sequences without prefill rows have step classes of their own
  size_t plan_bytes = 0;           // of every plan, besides its workspaces and the steps in flight
};

// `device`: tells which kinds of memory are on it.
std::unique_ptr<Backend> make_layout_backend(const Device& device, DeviceInfo info, LayoutOptions options);

}  // namespace zinc::gpu
