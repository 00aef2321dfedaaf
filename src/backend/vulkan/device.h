// One Vulkan device: memory, queue and pipelines. All driver calls of this backend go through it. Work is submitted in
// order to one queue; a submission is identified by the value that it signals on the timeline semaphore. Thread-safe:
// models that are loaded or run concurrently share it. Submitting never waits for another thread's GPU work, file
// access or shader compilation.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "backend/vulkan/capabilities.h"
#include "backend/vulkan/params/spec_constants.h"

namespace zinc::vulkan {

using gpu::Address;
using TimelineValue = uint64_t;  // of a submission, which is complete when the timeline semaphore reaches it

using gpu::Buffer;
using gpu::Memory;

VkBuffer handle_of(const Buffer& buffer);  // REQUIRES: a device of this backend allocated it

// A kernel and its specialization constants; Device adds kSpecSubgroupSize.
struct KernelKey {
  std::string module;
  std::vector<std::pair<SpecConstant, int>> constants;
  auto operator<=>(const KernelKey&) const = default;
};

// Compiler statistics of a kernel: registers, spills, occupancy. Names are the driver's.
struct KernelStatistic {
  std::string name;
  uint64_t value = 0;
};

// Totals since the device was opened. Tests require that a decode step increments none of the first four.
struct Counters {
  size_t n_pipelines = 0, n_recordings = 0, n_descriptor_sets = 0, n_allocations = 0;
  size_t n_compiled = 0;  // pipelines that were not in the pipeline cache on disk
  size_t n_submissions = 0;
  uint64_t host_ns = 0;  // host time spent on submitting steps
};

// Binds the parameters of a kernel and of a step as uniform blocks.
struct DescriptorSet {
  VkDescriptorPool pool = VK_NULL_HANDLE;
  VkDescriptorSet set = VK_NULL_HANDLE;
};

class Device final : public gpu::Device {
 public:
  // The best GPU, or the first device whose name contains `name`; lives as long as the process. A CPU device is used
  // only if it is named.
  static Result<Device*> shared(std::string_view name);
  static bool has_gpu();
  static std::vector<Capabilities> all();  // all devices of the installed drivers, usable or not
  // For compiling kernels only; works without a GPU behind the driver.
  static Result<std::unique_ptr<Device>> open_for_compilation(std::string_view name);
  Result<std::vector<KernelStatistic>> statistics(const KernelKey& key);
  ~Device() override;

  const Capabilities& capabilities() const { return capabilities_; }
  const Tuning& tuning() const { return tuning_of(capabilities_); }
  // Whether workgroups may poll for earlier dispatches: the vendor's devices start workgroups in order, and this device
  // passed test_dispatch_order().
  bool starts_in_order() const { return starts_in_order_; }
  bool has_timestamps() const { return has_timestamps_; }
  const DeviceApi& api() const { return api_; }
  VkDevice handle() const { return device_; }
  Counters counters() const;
  void count_host_time(uint64_t ns);
  size_t free_bytes() const;

  using gpu::Device::allocate;
  Result<Buffer> allocate(size_t n_bytes, std::string_view what, Memory kind) override;  // zeroed
  Result<VkPipeline> pipeline(const KernelKey& key);
  VkPipelineLayout layout() const { return layout_; }
  // Binds the parameters of a kernel (binding 0) and of a step (binding 1), both with dynamic offsets.
  Result<DescriptorSet> make_descriptor_set(const Buffer& params, const Buffer& steps);
  void free_descriptor_set(const DescriptorSet& set);
  static constexpr size_t kMaxParamsBytes = 1024;  // of a uniform block: the parameters of a kernel or a step

  // A reusable command buffer; free_commands() after the device has finished with it.
  Result<VkCommandBuffer> record(const std::function<void(VkCommandBuffer)>& commands);
  void free_commands(VkCommandBuffer commands);
  Result<TimelineValue> submit(std::span<const VkCommandBuffer> commands);
  Result<TimelineValue> run(const std::function<void(VkCommandBuffer)>& commands);  // records and submits once
  Status wait(TimelineValue timeline_value);
  Status wait_all() override;

  // Ordered after all earlier and before all later submissions.
  Result<TimelineValue> copy(const Buffer& src, size_t src_offset, const Buffer& dst, size_t dst_offset,
                             size_t n_bytes);
  Status copy(std::span<const gpu::BufferCopy> copies) override;
  Status read(const Buffer& src, size_t offset, std::span<std::byte> dst) override;
  Status write(const Buffer& dst, size_t offset, std::span<const std::byte> src) override;

  Status check(VkResult code, std::string_view what) const;
  void save_pipeline_cache() const;  // to the cache folder, if new pipelines were compiled

 private:
  struct OneTimeCommands {  // reused after its submission has completed
    VkCommandBuffer commands = VK_NULL_HANDLE;
    TimelineValue timeline_value = 0;
  };

  Device() = default;
  static Result<std::unique_ptr<Device>> open(const InstanceApi& instance, VkPhysicalDevice physical);
  Status make_device(const InstanceApi& instance, bool with_statistics = false);
  Result<VkPipeline> compile(const KernelKey& key, VkPipelineCreateFlags flags);
  Status make_queue();
  Status make_layouts();
  Status load_pipeline_cache();
  std::filesystem::path pipeline_cache_path() const;
  Status self_test();
  Status test_dispatch_order();
  int memory_type(uint32_t allowed, Memory kind) const;
  void count(size_t Counters::*what);
  Result<VkCommandBuffer> allocate_commands();                                     // REQUIRES: mutex_ is held
  Result<TimelineValue> submit_locked(std::span<const VkCommandBuffer> commands);  // REQUIRES: mutex_ is held
  Result<OneTimeCommands> acquire_one_time();
  Status record_into(VkCommandBuffer commands, VkCommandBufferUsageFlags usage,
                     const std::function<void(VkCommandBuffer)>& write);

  Capabilities capabilities_;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  VkPhysicalDeviceMemoryProperties memory_{};
  const InstanceApi* instance_ = nullptr;
  VkDevice device_ = VK_NULL_HANDLE;
  DeviceApi api_;
  uint32_t queue_family_ = 0;
  VkSemaphore timeline_ = VK_NULL_HANDLE;
  VkDescriptorSetLayout set_layout_ = VK_NULL_HANDLE;
  VkPipelineLayout layout_ = VK_NULL_HANDLE;
  VkPipelineCache pipeline_cache_ = VK_NULL_HANDLE;
  bool starts_in_order_ = false, has_timestamps_ = false;

  mutable std::mutex mutex_;  // guards the following members; never held longer than recording takes
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool commands_ = VK_NULL_HANDLE;
  std::deque<OneTimeCommands> one_time_;  // oldest first
  TimelineValue last_timeline_value_ = 0;
  Counters counters_;

  mutable std::mutex pipelines_mutex_;  // held while a kernel compiles; locked before mutex_
  std::map<KernelKey, VkPipeline> pipelines_;
  mutable size_t n_saved_ = 0;

  std::mutex staging_mutex_;  // held until the device has finished with the buffers; locked before mutex_
  Buffer staging_, readback_;
};

// Memory barriers: for compute shaders and transfers, or compute shaders only.
void add_barrier(const DeviceApi& api, VkCommandBuffer commands);
void add_compute_barrier(const DeviceApi& api, VkCommandBuffer commands);

}  // namespace zinc::vulkan
