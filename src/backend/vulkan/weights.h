// Weights on the device. Matrices lie in panels, packed by the host's threads on their way into staging memory, two
// halves of which are filled and copied in turn; those of formats without panels are decoded: to f16 where they
// multiply, to f32 where rows of them are read. Small vectors are f32. Found by tensor name, shared by all graphs.
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
  const PanelFormat* format = nullptr;  // as it lies on the device
  int n_stack = 1;
  Matrix matrix{};
};

class VulkanWeights final : public DeviceWeights {
 public:
  static Result<std::unique_ptr<VulkanWeights>> upload(std::span<const Graph* const> graphs, Device& device,
                                                       ThreadPool& threads, const DoneWith& done_with);
  size_t device_bytes() const override { return device_bytes_; }

  const DeviceMatrix* matrix(const std::string& name) const;  // of linear and moe_linear. nullptr: none
  const DeviceMatrix* table(const std::string& name) const;   // of embed
  Address vector(const std::string& name) const;              // 0: none
  const std::vector<float>& host_vector(const std::string& name) const { return host_vectors_.at(name); }

 private:
  struct Staging;
  struct Place {  // within a slab
    size_t slab = 0, at = 0;
  };
  Status add_matrix(const ValueInfo& info, bool is_table, Staging& staging);
  Status add_vector(const ValueInfo& info, Staging& staging);
  Result<Place> take(size_t n_bytes, const std::string& what, Device& device);
  Address address(const Place& place) const { return slabs_[place.slab].address() + place.at; }

  std::unordered_map<std::string, DeviceMatrix> matrices_;
  std::unordered_map<std::string, DeviceMatrix> tables_;  // only those that differ from the matrix of the same name
  std::unordered_map<std::string, Address> vectors_;
  std::unordered_map<std::string, std::vector<float>> host_vectors_;
  std::vector<Buffer> slabs_;
  size_t n_used_ = 0;  // of the last slab
  size_t device_bytes_ = 0;
};

}  // namespace zinc::vulkan
