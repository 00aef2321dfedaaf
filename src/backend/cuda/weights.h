// Weights on an NVIDIA GPU: rows in the file's layout are copied to the device, where a kernel packs them into panels
// (backend/simt/panel.h).
#pragma once

#include "backend/cuda/device.h"
#include "backend/gpu/weights.h"
#include "backend/simt/host/workspace.h"
#include "base/thread_pool.h"

namespace zinc::cuda {

inline gpu::KernelFormats kernel_formats() { return simt::host::kernel_formats("cuda"); }

inline constexpr size_t kWeightStagingBytes = size_t{128} << 20;  // of device memory, and the same of the host's

Result<std::unique_ptr<gpu::Weights>> upload_weights(std::span<const Graph* const> graphs, Device& device,
                                                     ThreadPool& threads, const ReleaseFilePages& release_file_pages);
// Device and threads must outlive the result.
std::unique_ptr<gpu::WeightUploader> make_weight_uploader(Device& device, ThreadPool& threads);

}  // namespace zinc::cuda
