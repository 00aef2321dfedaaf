// Weights on the GPU. Matrices are stored in panels (backend/simt/panel.h), packed on the device from the file's quant
// blocks. Formats without panels are dequantized by the host on upload: matmul weights to f16, embedding tables to f32.
// Vectors are f32. Looked up by tensor name and shared by all graphs.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/formats.h"
#include "backend/simt/params.h"
#include "base/thread_pool.h"

namespace zinc::cuda {

struct DeviceMatrix {
  const PanelFormat* format = nullptr;  // on the device
  int n_experts = 1;                    // matrices in `bytes`: 1, or one per expert
  simt::Matrix matrix{};
  Buffer bytes;
};

class CudaWeights final : public DeviceWeights {
 public:
  static Result<std::unique_ptr<CudaWeights>> upload(std::span<const Graph* const> graphs, Device& device,
                                                     ThreadPool& threads, const ReleaseFilePages& release_file_pages);
  size_t device_bytes() const override { return device_bytes_; }

  const DeviceMatrix* matrix(const std::string& name) const;  // of linear and moe_linear; nullptr: not found
  const DeviceMatrix* table(const std::string& name) const;   // of embed
  const float* vector(const std::string& name) const;         // on the device
  const std::vector<float>& host_vector(const std::string& name) const { return host_vectors_.at(name); }

 private:
  struct Staging;
  struct WeightUpload;
  Status add_matrix(const ValueInfo& info, bool is_table, Device& device, ThreadPool& threads, Staging& staging);
  Status add_vector(const ValueInfo& info, Device& device);

  std::unordered_map<std::string, DeviceMatrix> matrices_;
  std::unordered_map<std::string, DeviceMatrix> tables_;  // only if stored differently from the matrix of the same name
  std::unordered_map<std::string, Buffer> vectors_;
  std::unordered_map<std::string, std::vector<float>> host_vectors_;
  size_t device_bytes_ = 0;
};

}  // namespace zinc::cuda
