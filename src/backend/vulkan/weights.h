// Weights on a Vulkan device: packed into panels by the host's threads, through two staging buffers that are filled and
// copied alternately.
#pragma once

#include "backend/gpu/weights.h"
#include "backend/vulkan/device.h"
#include "backend/vulkan/params.h"
#include "base/thread_pool.h"

namespace zinc::vulkan {

size_t weight_staging_bytes(const Device& device);  // of device memory, while weights are uploaded, at most

Result<std::unique_ptr<gpu::Weights>> upload_weights(std::span<const Graph* const> graphs, Device& device,
                                                     ThreadPool& threads, const ReleaseFilePages& release_file_pages);
// Device and threads must outlive the result.
std::unique_ptr<gpu::WeightUploader> make_weight_uploader(Device& device, ThreadPool& threads);

Matrix shader_matrix(const gpu::DeviceMatrix& matrix);
int k_splits(const gpu::DeviceMatrix& matrix);  // warps that share the K segments of a row in split-K matmuls

}  // namespace zinc::vulkan
