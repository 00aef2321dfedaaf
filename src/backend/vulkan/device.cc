#include "backend/vulkan/device.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

namespace zinc::vulkan {
namespace {

constexpr uint64_t kMaxWaitNs = 600ull * 1'000'000'000;
constexpr size_t kStagingBytes = size_t{16} << 20;
constexpr size_t kMaxOneTime = 16;

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

int rank_of(VkPhysicalDeviceType type) {
  if (type == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU) return 3;
  if (type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU) return 2;
  if (type == VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU) return 1;
  return 0;
}

struct Candidate {
  VkPhysicalDevice physical;
  Capabilities capabilities;
};

std::vector<Candidate> devices(const InstanceApi& api) {
  uint32_t n = 0;
  api.EnumeratePhysicalDevices(api.instance, &n, nullptr);
  std::vector<VkPhysicalDevice> all(n);
  api.EnumeratePhysicalDevices(api.instance, &n, all.data());
  std::vector<Candidate> found;
  for (VkPhysicalDevice device : all) found.push_back({device, query_capabilities(api, device)});
  return found;
}

Result<VkPhysicalDevice> choose_device(const InstanceApi& api, std::string_view name) {
  const std::vector<Candidate> all = devices(api);
  const Candidate* best = nullptr;
  std::string names, lacking;
  for (const Candidate& device : all) {
    names += (names.empty() ? "" : ", ") + device.capabilities.name;
    const bool fits =
        name.empty() ? rank_of(device.capabilities.type) > 0 : contains_ignoring_case(device.capabilities.name, name);
    if (!fits) continue;
    if (const std::string missing = missing_feature(device.capabilities); !missing.empty()) {
      lacking = fmt::format("{} lacks {}", device.capabilities.name, missing);
      continue;
    }
    if (!best || rank_of(device.capabilities.type) > rank_of(best->capabilities.type)) best = &device;
  }
  if (best) return best->physical;
  if (!lacking.empty()) return fail(ErrorCode::unsupported, "{}, which the vulkan backend requires", lacking);
  if (all.empty()) {
    return fail(ErrorCode::not_found,
                "no Vulkan driver is installed (Debian: mesa-vulkan-drivers, or your GPU vendor's driver)");
  }
  if (name.empty()) {
    return fail(ErrorCode::not_found,
                "Vulkan found no GPU, only: {}; to run on a CPU device, name it, as in --backend vulkan:llvmpipe",
                names);
  }
  return fail(ErrorCode::not_found, "no Vulkan device's name contains '{}'; available: {}", name, names);
}

// A buffer and its memory.
struct BufferMemory final : gpu::Allocation {
  BufferMemory(const DeviceApi& device_api, VkDevice of) : api(device_api), device(of) {}
  ~BufferMemory() override {
    if (buffer) api.DestroyBuffer(device, buffer, nullptr);
    if (memory) api.FreeMemory(device, memory, nullptr);
  }
  const DeviceApi& api;
  VkDevice device;
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
};

}  // namespace

VkBuffer handle_of(const Buffer& buffer) {
  const auto* allocation = static_cast<const BufferMemory*>(buffer.allocation());
  return allocation ? allocation->buffer : VK_NULL_HANDLE;
}

Result<Device*> Device::shared(std::string_view name) {
  // Never destroyed: at process exit the driver may be unloaded first.
  static auto& opened_devices = *new std::map<VkPhysicalDevice, std::unique_ptr<Device>>();
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  ZINC_TRY(instance, load_instance());
  ZINC_TRY(physical, choose_device(*instance, name));
  std::unique_ptr<Device>& device = opened_devices[physical];
  if (!device) {
    ZINC_TRY(new_device, open(*instance, physical));
    device = std::move(new_device);
  }
  return device.get();
}

bool Device::has_gpu() {
  const Result<const InstanceApi*> instance = load_instance();
  return instance.ok() && choose_device(*instance.value(), "").ok();
}

std::vector<Capabilities> Device::all() {
  std::vector<Capabilities> out;
  const Result<const InstanceApi*> instance = load_instance();
  if (!instance.ok()) return out;
  for (Candidate& found : devices(*instance.value())) out.push_back(std::move(found.capabilities));
  return out;
}

Result<std::unique_ptr<Device>> Device::open(const InstanceApi& instance, VkPhysicalDevice physical) {
  std::unique_ptr<Device> device(new Device());
  device->physical_ = physical;
  device->instance_ = &instance;
  device->capabilities_ = query_capabilities(instance, physical);
  if (Status s = device->make_device(instance); !s.ok()) return s.error();
  if (Status s = device->make_queue(); !s.ok()) return s.error();
  if (Status s = device->make_layouts(); !s.ok()) return s.error();
  if (Status s = device->load_pipeline_cache(); !s.ok()) return s.error();
  if (Status s = device->self_test(); !s.ok()) return s.error();
  if (Status s = device->test_dispatch_order(); !s.ok()) return s.error();
  return device;
}

Result<std::unique_ptr<Device>> Device::open_for_compilation(std::string_view name) {
  ZINC_TRY(instance, load_instance());
  ZINC_TRY(physical, choose_device(*instance, name));
  std::unique_ptr<Device> device(new Device());
  device->physical_ = physical;
  device->instance_ = instance;
  device->capabilities_ = query_capabilities(*instance, physical);
  if (!device->capabilities_.has_statistics) {
    return fail(ErrorCode::unsupported, "the driver of {} does not report statistics of compiled kernels",
                device->capabilities_.name);
  }
  if (Status s = device->make_device(*instance, true); !s.ok()) return s.error();
  if (Status s = device->make_layouts(); !s.ok()) return s.error();
  if (Status s = device->load_pipeline_cache(); !s.ok()) return s.error();
  return device;
}

Status Device::make_device(const InstanceApi& instance, bool with_statistics) {
  uint32_t n = 0;
  instance.GetPhysicalDeviceQueueFamilyProperties(physical_, &n, nullptr);
  std::vector<VkQueueFamilyProperties> families(n);
  instance.GetPhysicalDeviceQueueFamilyProperties(physical_, &n, families.data());
  const auto computes = [](const VkQueueFamilyProperties& f) { return (f.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0; };
  const auto family = std::ranges::find_if(families, computes);
  if (family == families.end()) return fail(ErrorCode::unsupported, "{} has no compute queue", capabilities_.name);
  queue_family_ = static_cast<uint32_t>(family - families.begin());
  has_timestamps_ = family->timestampValidBits > 0;

  const float priority = 1;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = queue_family_;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkPhysicalDeviceVulkan13Features v13{};
  v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
  v13.shaderIntegerDotProduct = VK_TRUE;
  v13.maintenance4 = VK_TRUE;
  v13.subgroupSizeControl = capabilities_.has_subgroup_control;
  v13.computeFullSubgroups = capabilities_.has_full_subgroups;
  VkPhysicalDeviceVulkan12Features v12{};
  v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  v12.bufferDeviceAddress = VK_TRUE;
  v12.scalarBlockLayout = VK_TRUE;
  v12.timelineSemaphore = VK_TRUE;
  v12.pNext = &v13;
  CooperativeMatrixFeatures matrices{.cooperativeMatrix = VK_TRUE};
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.features.shaderInt64 = VK_TRUE;
  features.pNext = &v12;
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &features;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  std::vector<const char*> extensions;
  if (capabilities_.has_memory_budget) extensions.push_back("VK_EXT_memory_budget");
  if (capabilities_.has_coopmat) {
    extensions.push_back("VK_KHR_cooperative_matrix");
    v12.shaderInt8 = capabilities_.has_int8;
    v12.shaderFloat16 = capabilities_.has_float16;
    v12.vulkanMemoryModel = VK_TRUE;
    v13.pNext = &matrices;
  }
  VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics{};
  statistics.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR;
  statistics.pipelineExecutableInfo = VK_TRUE;
  if (with_statistics) {
    extensions.push_back("VK_KHR_pipeline_executable_properties");
    statistics.pNext = v13.pNext;
    v13.pNext = &statistics;
  }
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  if (Status s = check(instance.CreateDevice(physical_, &info, nullptr, &device_), "creating the device"); !s.ok()) {
    return s;
  }
  ZINC_TRY(api, load_device(instance, device_));
  api_ = api;
  if (with_statistics) {
    api_.GetPipelineExecutableStatisticsKHR = reinterpret_cast<PFN_vkGetPipelineExecutableStatisticsKHR>(
        instance.GetDeviceProcAddr(device_, "vkGetPipelineExecutableStatisticsKHR"));
  }
  api_.GetDeviceQueue(device_, queue_family_, 0, &queue_);
  VkPhysicalDeviceMemoryProperties2 memory{};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  instance.GetPhysicalDeviceMemoryProperties2(physical_, &memory);
  memory_ = memory.memoryProperties;
  return ok_status();
}

Status Device::make_queue() {
  VkCommandPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = queue_family_;
  if (Status s = check(api_.CreateCommandPool(device_, &pool, nullptr, &commands_), "creating a command pool");
      !s.ok()) {
    return s;
  }
  VkSemaphoreTypeCreateInfo type{};
  type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
  type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
  VkSemaphoreCreateInfo semaphore{};
  semaphore.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
  semaphore.pNext = &type;
  return check(api_.CreateSemaphore(device_, &semaphore, nullptr, &timeline_), "creating a timeline semaphore");
}

Status Device::make_layouts() {
  std::array<VkDescriptorSetLayoutBinding, 2> bindings{};
  for (uint32_t i = 0; i < bindings.size(); ++i) {
    bindings[i].binding = i;
    bindings[i].descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC;
    bindings[i].descriptorCount = 1;
    bindings[i].stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  }
  VkDescriptorSetLayoutCreateInfo set{};
  set.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
  set.bindingCount = static_cast<uint32_t>(bindings.size());
  set.pBindings = bindings.data();
  if (Status s =
          check(api_.CreateDescriptorSetLayout(device_, &set, nullptr, &set_layout_), "creating the pipeline layout");
      !s.ok()) {
    return s;
  }
  VkPipelineLayoutCreateInfo layout{};
  layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  layout.setLayoutCount = 1;
  layout.pSetLayouts = &set_layout_;
  return check(api_.CreatePipelineLayout(device_, &layout, nullptr, &layout_), "creating the pipeline layout");
}

Device::~Device() {
  if (!device_) return;
  if (!api_.DestroyDevice) return;
  if (last_timeline_value_ > 0) api_.DeviceWaitIdle(device_);
  staging_ = Buffer();
  readback_ = Buffer();
  for (const auto& [key, pipeline] : pipelines_) api_.DestroyPipeline(device_, pipeline, nullptr);
  if (pipeline_cache_) api_.DestroyPipelineCache(device_, pipeline_cache_, nullptr);
  if (layout_) api_.DestroyPipelineLayout(device_, layout_, nullptr);
  if (set_layout_) api_.DestroyDescriptorSetLayout(device_, set_layout_, nullptr);
  if (timeline_) api_.DestroySemaphore(device_, timeline_, nullptr);
  if (commands_) api_.DestroyCommandPool(device_, commands_, nullptr);
  api_.DestroyDevice(device_, nullptr);
}

Status Device::check(VkResult code, std::string_view what) const {
  if (code == VK_SUCCESS) return ok_status();
  const bool is_memory = code == VK_ERROR_OUT_OF_DEVICE_MEMORY || code == VK_ERROR_OUT_OF_HOST_MEMORY;
  return fail(is_memory ? ErrorCode::out_of_memory : ErrorCode::device_lost, "{}: {} failed: {} (Vulkan result {})",
              capabilities_.name, what, result_name(code), static_cast<int>(code));
}

Counters Device::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Device::count(size_t Counters::*what) {
  const std::lock_guard lock(mutex_);
  ++(counters_.*what);
}

void Device::count_host_time(uint64_t ns) {
  const std::lock_guard lock(mutex_);
  counters_.host_ns += ns;
}

// ---- memory ----

size_t Device::free_bytes() const {
  if (!capabilities_.has_memory_budget) return capabilities_.device_memory_bytes;
  VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{};
  budget.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
  VkPhysicalDeviceMemoryProperties2 memory{};
  memory.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  memory.pNext = &budget;
  instance_->GetPhysicalDeviceMemoryProperties2(physical_, &memory);
  size_t max_free = 0;
  for (uint32_t i = 0; i < memory_.memoryHeapCount; ++i) {
    if ((memory_.memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) == 0) continue;
    const size_t used = budget.heapUsage[i], total = budget.heapBudget[i];
    max_free = std::max(max_free, total > used ? total - used : 0);
  }
  return max_free;
}

int Device::memory_type(uint32_t allowed, Memory kind) const {
  constexpr VkMemoryPropertyFlags kDevice = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkMemoryPropertyFlags kHost = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  std::vector<VkMemoryPropertyFlags> preferred;
  if (kind == Memory::device) preferred = {kDevice, 0};
  if (kind == Memory::upload) preferred = {kHost | kDevice, kHost};
  if (kind == Memory::readback) preferred = {kHost | VK_MEMORY_PROPERTY_HOST_CACHED_BIT, kHost};
  for (const VkMemoryPropertyFlags flags : preferred) {
    for (uint32_t i = 0; i < memory_.memoryTypeCount; ++i) {
      if ((allowed >> i & 1) != 0 && (memory_.memoryTypes[i].propertyFlags & flags) == flags)
        return static_cast<int>(i);
    }
  }
  return -1;
}

Result<Buffer> Device::allocate(size_t n_bytes, std::string_view what, Memory kind) {
  if (n_bytes == 0) return Buffer();
  if (n_bytes > capabilities_.max_allocation_bytes) {
    return fail(ErrorCode::out_of_memory, "{}: {} bytes for {} exceed this device's maximum allocation of {} bytes",
                capabilities_.name, n_bytes, what, capabilities_.max_allocation_bytes);
  }
  auto allocation = std::make_unique<BufferMemory>(api_, device_);
  VkBufferCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = (n_bytes + 15) / 16 * 16;
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
  if (kind == Memory::upload) info.usage |= VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT;
  if (Status s = check(api_.CreateBuffer(device_, &info, nullptr, &allocation->buffer), what); !s.ok())
    return s.error();
  VkMemoryRequirements needs{};
  api_.GetBufferMemoryRequirements(device_, allocation->buffer, &needs);
  VkMemoryAllocateFlagsInfo flags{};
  flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
  flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
  VkMemoryAllocateInfo memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  memory.pNext = &flags;
  memory.allocationSize = needs.size;
  memory.memoryTypeIndex = static_cast<uint32_t>(memory_type(needs.memoryTypeBits, kind));
  const VkResult allocated = api_.AllocateMemory(device_, &memory, nullptr, &allocation->memory);
  if (allocated == VK_ERROR_OUT_OF_DEVICE_MEMORY || allocated == VK_ERROR_OUT_OF_HOST_MEMORY) {
    return fail(
        ErrorCode::out_of_memory,
        "{}: cannot allocate {} bytes for {}: {} of {} bytes are free; use a smaller model, a smaller quantization "
        "or a shorter context",
        capabilities_.name, n_bytes, what, free_bytes(), capabilities_.device_memory_bytes);
  }
  if (Status s = check(allocated, what); !s.ok()) return s.error();
  count(&Counters::n_allocations);
  if (Status s = check(api_.BindBufferMemory(device_, allocation->buffer, allocation->memory, 0), what); !s.ok()) {
    return s.error();
  }
  VkBufferDeviceAddressInfo address{};
  address.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
  address.buffer = allocation->buffer;
  const Address begin = api_.GetBufferDeviceAddress(device_, &address);
  if (kind != Memory::device) {
    void* mapped = nullptr;
    const VkResult code = api_.MapMemory(device_, allocation->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
    if (Status s = check(code, what); !s.ok()) return s.error();
    std::memset(mapped, 0, n_bytes);
    return Buffer(std::move(allocation), begin, mapped, n_bytes);
  }
  const VkBuffer handle = allocation->buffer;
  ZINC_TRY(filled, run([&](VkCommandBuffer c) { api_.CmdFillBuffer(c, handle, 0, VK_WHOLE_SIZE, 0); }));
  return Buffer(std::move(allocation), begin, nullptr, n_bytes);
}

Result<TimelineValue> Device::copy(const Buffer& src, size_t src_offset, const Buffer& dst, size_t dst_offset,
                                   size_t n_bytes) {
  const VkBufferCopy region{src_offset, dst_offset, n_bytes};
  return run([&](VkCommandBuffer c) { api_.CmdCopyBuffer(c, handle_of(src), handle_of(dst), 1, &region); });
}

Status Device::copy(std::span<const gpu::BufferCopy> copies) {
  ZINC_TRY(submitted, run([&](VkCommandBuffer c) {
             for (const gpu::BufferCopy& copy : copies) {
               const VkBufferCopy region{copy.from_offset, copy.to_offset, copy.n_bytes};
               api_.CmdCopyBuffer(c, handle_of(copy.from), handle_of(copy.to), 1, &region);
             }
           }));
  return ok_status();
}

Status Device::read(const Buffer& src, size_t offset, std::span<std::byte> dst) {
  const std::lock_guard lock(staging_mutex_);
  if (readback_.size() == 0) {
    ZINC_TRY(readback, allocate(kStagingBytes, "readback staging", Memory::readback));
    readback_ = std::move(readback);
  }
  for (size_t done = 0; done < dst.size(); done += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, dst.size() - done);
    ZINC_TRY(timeline_value, copy(src, offset + done, readback_, 0, n));
    if (Status s = wait(timeline_value); !s.ok()) return s;
    std::memcpy(dst.data() + done, readback_.host_ptr<std::byte>(), n);
  }
  return ok_status();
}

Status Device::write(const Buffer& dst, size_t offset, std::span<const std::byte> src) {
  const std::lock_guard lock(staging_mutex_);
  if (staging_.size() == 0) {
    ZINC_TRY(staging, allocate(kStagingBytes, "upload staging", Memory::upload));
    staging_ = std::move(staging);
  }
  for (size_t done = 0; done < src.size(); done += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, src.size() - done);
    std::memcpy(staging_.host_ptr<std::byte>(), src.data() + done, n);
    ZINC_TRY(timeline_value, copy(staging_, 0, dst, offset + done, n));
    if (Status s = wait(timeline_value); !s.ok()) return s;
  }
  return ok_status();
}

// ---- commands ----

void add_barrier(const DeviceApi& api, VkCommandBuffer commands) {
  constexpr VkPipelineStageFlags kStages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
  VkMemoryBarrier barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                          VK_ACCESS_TRANSFER_WRITE_BIT;
  api.CmdPipelineBarrier(commands, kStages, kStages, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

void add_compute_barrier(const DeviceApi& api, VkCommandBuffer commands) {
  VkMemoryBarrier barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
  api.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1,
                         &barrier, 0, nullptr, 0, nullptr);
}

namespace {

// Makes results visible to host reads after the wait.
void add_host_read_barrier(const DeviceApi& api, VkCommandBuffer commands) {
  VkMemoryBarrier barrier{};
  barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
  barrier.dstAccessMask = VK_ACCESS_HOST_READ_BIT;
  api.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
                         VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

}  // namespace

Status Device::record_into(VkCommandBuffer commands, VkCommandBufferUsageFlags usage,
                           const std::function<void(VkCommandBuffer)>& write) {
  VkCommandBufferBeginInfo begin{};
  begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  begin.flags = usage;
  if (Status s = check(api_.BeginCommandBuffer(commands, &begin), "recording"); !s.ok()) return s;
  add_barrier(api_, commands);
  write(commands);
  add_host_read_barrier(api_, commands);
  return check(api_.EndCommandBuffer(commands), "recording");
}

Result<VkCommandBuffer> Device::allocate_commands() {
  VkCommandBufferAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  info.commandPool = commands_;
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  VkCommandBuffer commands = VK_NULL_HANDLE;
  if (Status s = check(api_.AllocateCommandBuffers(device_, &info, &commands), "recording"); !s.ok()) return s.error();
  return commands;
}

Result<VkCommandBuffer> Device::record(const std::function<void(VkCommandBuffer)>& write) {
  const std::lock_guard lock(mutex_);
  ZINC_TRY(commands, allocate_commands());
  ++counters_.n_recordings;
  if (Status s = record_into(commands, 0, write); !s.ok()) return s.error();
  return commands;
}

void Device::free_commands(VkCommandBuffer commands) {
  const std::lock_guard lock(mutex_);
  api_.FreeCommandBuffers(device_, commands_, 1, &commands);
}

Result<TimelineValue> Device::submit(std::span<const VkCommandBuffer> commands) {
  const std::lock_guard lock(mutex_);
  return submit_locked(commands);
}

Result<TimelineValue> Device::submit_locked(std::span<const VkCommandBuffer> commands) {
  const TimelineValue timeline_value = last_timeline_value_ + 1;
  VkTimelineSemaphoreSubmitInfo values{};
  values.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO;
  values.signalSemaphoreValueCount = 1;
  values.pSignalSemaphoreValues = &timeline_value;
  VkSubmitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  info.pNext = &values;
  info.commandBufferCount = static_cast<uint32_t>(commands.size());
  info.pCommandBuffers = commands.data();
  info.signalSemaphoreCount = 1;
  info.pSignalSemaphores = &timeline_;
  if (Status s = check(api_.QueueSubmit(queue_, 1, &info, VK_NULL_HANDLE), "submitting commands"); !s.ok()) {
    return s.error();
  }
  ++counters_.n_submissions;
  last_timeline_value_ = timeline_value;
  return timeline_value;
}

// The caller owns the buffer until it is returned, so its submission is waited for without the lock.
Result<Device::OneTimeCommands> Device::acquire_one_time() {
  const std::lock_guard lock(mutex_);
  if (one_time_.size() < kMaxOneTime) {
    ZINC_TRY(commands, allocate_commands());
    return OneTimeCommands{commands, 0};
  }
  const OneTimeCommands oldest = one_time_.front();
  one_time_.pop_front();
  return oldest;
}

Result<TimelineValue> Device::run(const std::function<void(VkCommandBuffer)>& write) {
  ZINC_TRY(one_time, acquire_one_time());
  Status ready = wait(one_time.timeline_value);
  const std::lock_guard lock(mutex_);
  if (ready.ok()) ready = record_into(one_time.commands, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, write);
  const Result<TimelineValue> timeline_value = ready.ok() ? submit_locked({&one_time.commands, 1}) : ready.error();
  if (timeline_value.ok()) one_time.timeline_value = timeline_value.value();
  one_time_.push_back(one_time);
  return timeline_value;
}

Status Device::wait_all() {
  TimelineValue last = 0;
  {
    const std::lock_guard lock(mutex_);
    last = last_timeline_value_;
  }
  return wait(last);
}

Status Device::wait(TimelineValue timeline_value) {
  if (timeline_value == 0) return ok_status();
  VkSemaphoreWaitInfo info{};
  info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
  info.semaphoreCount = 1;
  info.pSemaphores = &timeline_;
  info.pValues = &timeline_value;
  const VkResult result = api_.WaitSemaphores(device_, &info, kMaxWaitNs);
  if (result == VK_TIMEOUT) {
    return fail(ErrorCode::device_lost,
                "{}: a submission has not completed after ten minutes; the driver may have hung", capabilities_.name);
  }
  return check(result, "waiting for the timeline semaphore");
}

}  // namespace zinc::vulkan
