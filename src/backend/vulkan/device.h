// One Vulkan device: its memory, its queue, its pipelines. Everything this backend asks of the driver goes through
// here. Work is submitted in order to one queue; a ticket is a value of its timeline. Any thread: models that answer or
// are loaded beside each other share it. Nobody who submits waits for somebody else's work, files or compiling.
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

#include "backend/vulkan/capabilities.h"

namespace zinc::vulkan {

using Address = uint64_t;
using Ticket = uint64_t;  // what was submitted; done when the timeline has reached it

class Device;

enum class Memory : uint8_t {
  device,    // the device's own
  upload,    // written by the host, read by the device
  readback,  // written by the device, read by the host
};

// Memory and the buffer that is all of it; freed with the object. REQUIRES: the device is done with it then.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  size_t size() const { return n_bytes_; }
  Address address() const { return address_; }
  VkBuffer handle() const { return buffer_; }
  template <class T>
  T* as() const {  // REQUIRES: upload or readback memory
    return static_cast<T*>(mapped_);
  }

 private:
  friend class Device;
  const Device* device_ = nullptr;
  VkBuffer buffer_ = VK_NULL_HANDLE;
  VkDeviceMemory memory_ = VK_NULL_HANDLE;
  Address address_ = 0;
  void* mapped_ = nullptr;
  size_t n_bytes_ = 0;
};

// A kernel and the constants it is compiled for, from constant_id 1 on; 0 is the subgroup's size.
struct KernelKey {
  std::string module;
  std::vector<std::pair<uint32_t, int>> constants;
  auto operator<=>(const KernelKey&) const = default;
};

// What a driver says of a compiled kernel: registers, spills, occupancy, under names of its own.
struct KernelStatistic {
  std::string name;
  uint64_t value = 0;
};

// What was done so far: tests hold a token to none of the first four.
struct Counters {
  size_t n_pipelines = 0, n_recordings = 0, n_descriptor_sets = 0, n_allocations = 0;
  size_t n_compiled = 0;  // pipelines that were not in the cache on disk
  size_t n_submissions = 0;
  uint64_t host_ns = 0;  // that the host took to start steps
};

// How kernels find their parameters.
struct BlockSet {
  VkDescriptorPool pool = VK_NULL_HANDLE;
  VkDescriptorSet set = VK_NULL_HANDLE;
};

class Device {
 public:
  // The best real card, or the first device whose name contains `name`; kept for the process. A device that computes on
  // the CPU is only taken by name.
  static Result<Device*> shared(std::string_view name);
  static bool has_real_card();
  static std::vector<Capabilities> all();  // that drivers here offer, usable or not
  // Compiles kernels and runs nothing: also for a driver without a card behind it.
  static Result<std::unique_ptr<Device>> open_to_compile(std::string_view name);
  Result<std::vector<KernelStatistic>> statistics(const KernelKey& key);
  ~Device();

  const Capabilities& capabilities() const { return capabilities_; }
  const Tuning& tuning() const { return tuning_of(capabilities_); }
  // Whether workgroups may wait for those of dispatches before theirs: the maker's devices can, and this one was seen
  // to.
  bool starts_in_order() const { return starts_in_order_; }
  bool has_timestamps() const { return has_timestamps_; }
  const DeviceApi& api() const { return api_; }
  VkDevice handle() const { return device_; }
  Counters counters() const;
  void count_host_time(uint64_t ns);
  size_t free_bytes() const;

  Result<Buffer> allocate(size_t n_bytes, std::string_view what, Memory kind = Memory::device);  // zeroed
  Result<VkPipeline> pipeline(const KernelKey& key);
  VkPipelineLayout layout() const { return layout_; }
  // A set whose bindings are a block of `params` and one of `steps`, at offsets chosen when it is bound.
  Result<BlockSet> describe(const Buffer& params, const Buffer& steps);
  void free_set(const BlockSet& set);
  static constexpr size_t kBlockBytes = 1024;  // of a kernel's parameters, at most

  // A command buffer for good; free_commands() when the device is done with it.
  Result<VkCommandBuffer> record(const std::function<void(VkCommandBuffer)>& commands);
  void free_commands(VkCommandBuffer commands);
  Result<Ticket> submit(std::span<const VkCommandBuffer> commands);
  Result<Ticket> run(const std::function<void(VkCommandBuffer)>& commands);  // recorded for this once
  Status wait(Ticket ticket);
  Status wait_all();  // for all that was submitted when it was called

  // After all work before, before all work behind.
  Result<Ticket> copy(const Buffer& from, size_t from_at, const Buffer& to, size_t to_at, size_t n_bytes);
  Status read(const Buffer& from, size_t at, std::span<std::byte> out);
  Status write(const Buffer& to, size_t at, std::span<const std::byte> in);

  Status check(VkResult code, std::string_view what) const;
  void keep_pipelines() const;  // into the cache folder, if any was made anew

 private:
  struct Passing {  // a command buffer that is used once, and again when it is done
    VkCommandBuffer commands = VK_NULL_HANDLE;
    Ticket ticket = 0;
  };

  Device() = default;
  static Result<std::unique_ptr<Device>> open(const InstanceApi& instance, VkPhysicalDevice physical);
  Status make_device(const InstanceApi& instance, bool with_statistics = false);
  Result<VkPipeline> compile(const KernelKey& key, VkPipelineCreateFlags flags);
  Status make_queue();
  Status make_layouts();
  Status load_pipelines();
  std::filesystem::path pipelines_path() const;
  Status self_test();
  Status test_order();
  int memory_type(uint32_t allowed, Memory kind) const;
  void count(size_t Counters::*what);
  Result<VkCommandBuffer> make_commands();                                  // REQUIRES: mutex_ is held
  Result<Ticket> submit_locked(std::span<const VkCommandBuffer> commands);  // likewise
  Result<Passing> take_passing();
  Status write_commands(VkCommandBuffer commands, VkCommandBufferUsageFlags usage,
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

  mutable std::mutex mutex_;  // of what follows; held for no longer than recording takes
  VkQueue queue_ = VK_NULL_HANDLE;
  VkCommandPool commands_ = VK_NULL_HANDLE;
  std::deque<Passing> passing_;  // the oldest first
  Ticket last_ticket_ = 0;
  Counters counters_;

  mutable std::mutex pipelines_mutex_;  // held while a kernel is compiled; taken before mutex_
  std::map<KernelKey, VkPipeline> pipelines_;
  mutable size_t n_kept_ = 0;

  std::mutex staging_mutex_;  // held until the device has read or written it; taken before mutex_
  Buffer staging_, readback_;
  friend class Buffer;
};

// Work behind it sees what work before it wrote: kernels and copies, or kernels alone.
void add_barrier(const DeviceApi& api, VkCommandBuffer commands);
void add_kernel_barrier(const DeviceApi& api, VkCommandBuffer commands);

}  // namespace zinc::vulkan
