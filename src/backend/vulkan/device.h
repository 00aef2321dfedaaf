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

vk::Buffer handle_of(const Buffer& buffer);  // REQUIRES: a device of this backend allocated it

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
};

// Binds the parameters of a kernel and of a step as uniform blocks.
struct DescriptorSet {
  vk::DescriptorPool pool;
  vk::DescriptorSet set;
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
  vk::Device handle() const { return device_; }
  Counters counters() const;
  size_t free_bytes() const;

  using gpu::Device::allocate;
  Result<Buffer> allocate(size_t n_bytes, std::string_view what, Memory kind) override;  // zeroed
  Result<vk::Pipeline> pipeline(const KernelKey& key);
  // Binds the parameters of a kernel (binding 0) and of a step (binding 1), both with dynamic offsets.
  Result<DescriptorSet> make_descriptor_set(const Buffer& params, const Buffer& steps);
  void free_descriptor_set(const DescriptorSet& set);
  void bind_params(vk::CommandBuffer commands, vk::DescriptorSet set, size_t params_offset, size_t step_offset) const;
  static constexpr size_t kMaxParamsBytes = 1024;  // of a uniform block: the parameters of a kernel or a step

  // A reusable command buffer; free_commands() after the device has finished with it.
  Result<vk::CommandBuffer> record(const std::function<void(vk::CommandBuffer)>& commands);
  void free_commands(vk::CommandBuffer commands);
  Result<TimelineValue> submit(std::span<const vk::CommandBuffer> commands);
  Result<TimelineValue> run(const std::function<void(vk::CommandBuffer)>& commands);  // records and submits once
  Status wait(TimelineValue timeline_value);
  Status wait_all() override;

  // Ordered after all earlier and before all later submissions.
  Result<TimelineValue> copy(const Buffer& src, size_t src_offset, const Buffer& dst, size_t dst_offset,
                             size_t n_bytes);
  Status copy(std::span<const gpu::BufferCopy> copies) override;
  Status read(const Buffer& src, size_t offset, std::span<std::byte> dst) override;
  Status write(const Buffer& dst, size_t offset, std::span<const std::byte> src) override;
  bool is_on_device(Memory kind) const override;

  Status check(vk::Result code, std::string_view what) const;
  template <class T>
  Result<T> check(vk::ResultValue<T> result, std::string_view what) const {
    if (Status s = check(result.result, what); !s.ok()) return s.error();
    return std::move(result.value);
  }
  void save_pipeline_cache() const;  // to the cache folder, if new pipelines were compiled

 private:
  struct OneTimeCommands {  // reused after its submission has completed
    vk::CommandBuffer commands;
    TimelineValue timeline_value = 0;
  };

  Device() = default;
  // A device with its pipeline layout, which can compile kernels.
  static Result<std::unique_ptr<Device>> create(vk::PhysicalDevice physical, const Capabilities& capabilities,
                                                bool with_statistics);
  Status make_device(bool with_statistics);
  Result<vk::Pipeline> compile(const KernelKey& key, vk::PipelineCreateFlags flags);
  Status make_queue();
  Status make_layouts();
  Status load_pipeline_cache();
  std::filesystem::path pipeline_cache_path() const;
  Status self_test();
  Status test_dispatch_order();
  int memory_type(uint32_t allowed, Memory kind) const;
  Status make_staging();
  void count(size_t Counters::*what);
  Result<vk::CommandBuffer> allocate_commands();                                     // REQUIRES: mutex_ is held
  Result<TimelineValue> submit_locked(std::span<const vk::CommandBuffer> commands);  // REQUIRES: mutex_ is held
  Result<OneTimeCommands> acquire_one_time();
  Status record_into(vk::CommandBuffer commands, vk::CommandBufferUsageFlags usage,
                     const std::function<void(vk::CommandBuffer)>& write);

  Capabilities capabilities_;
  vk::PhysicalDevice physical_;
  vk::PhysicalDeviceMemoryProperties memory_;
  vk::Device device_;
  uint32_t queue_family_ = 0;
  vk::Semaphore timeline_;
  vk::DescriptorSetLayout set_layout_;
  vk::PipelineLayout layout_;
  vk::PipelineCache pipeline_cache_;
  bool starts_in_order_ = false, has_timestamps_ = false;

  mutable std::mutex mutex_;  // guards the following members; never held longer than recording takes
  vk::Queue queue_;
  vk::CommandPool commands_;
  std::deque<OneTimeCommands> one_time_;  // oldest first
  TimelineValue last_timeline_value_ = 0;
  Counters counters_;

  mutable std::mutex pipelines_mutex_;  // held while a kernel compiles; locked before mutex_
  std::map<KernelKey, vk::Pipeline> pipelines_;
  mutable size_t n_saved_ = 0;

  std::mutex staging_mutex_;   // held until the device has finished with the buffers; locked before mutex_
  Buffer staging_, readback_;  // of write() and read()
};

// A memory barrier between compute shaders.
void add_compute_barrier(vk::CommandBuffer commands);

}  // namespace zinc::vulkan
