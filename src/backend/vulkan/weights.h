// Weights on the device. Matrices are packed into panels by the host's threads, through two staging buffers that are
// filled and copied alternately. Formats without panels are dequantized: to f16 for matmuls, to f32 for embedding
// lookups. Small vectors are f32. Looked up by tensor name, shared by all graphs.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "backend/backend.h"
#include "backend/vulkan/device.h"
#include "backend/vulkan/panels.h"
#include "backend/vulkan/params.h"
#include "base/thread_pool.h"

namespace zinc::vulkan {

struct DeviceMatrix {
  const PanelFormat* format = nullptr;  // on the device
  int n_stack = 1;
  Matrix matrix{};
};

class VulkanWeights final : public DeviceWeights {
 public:
  static Result<std::unique_ptr<VulkanWeights>> upload(std::span<const Graph* const> graphs, Device& device,
                                                       ThreadPool& threads, const ReleaseFilePages& release_file_pages);
  size_t device_bytes() const override { return device_bytes_; }

  const DeviceMatrix* matrix(const std::string& name) const;  // for linear and moe_linear; nullptr: none
  const DeviceMatrix* table(const std::string& name) const;   // for embed
  Address vector(const std::string& name) const;              // 0: none
  const std::vector<float>& host_vector(const std::string& name) const { return host_vectors_.at(name); }

 private:
  struct Staging;
  struct SlabRange {  // an allocation within a slab
    size_t slab = 0, offset = 0;
  };
  Status add_matrix(const ValueInfo& info, bool is_table, Staging& staging);
  Status add_vector(const ValueInfo& info, Staging& staging);
  Result<SlabRange> allocate(size_t n_bytes, const std::string& what, Device& device);
  Address address(const SlabRange& range) const { return slabs_[range.slab].address() + range.offset; }

  std::unordered_map<std::string, DeviceMatrix> matrices_;
  std::unordered_map<std::string, DeviceMatrix> tables_;  // only tables that differ from the matrix of the same name
  std::unordered_map<std::string, Address> vectors_;
  std::unordered_map<std::string, std::vector<float>> host_vectors_;
  std::vector<Buffer> slabs_;
  size_t n_used_ = 0;  // bytes used of the last slab
  size_t device_bytes_ = 0;
};

}  // namespace zinc::vulkan
