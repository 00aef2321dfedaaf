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

int rank_of(vk::PhysicalDeviceType type) {
  if (type == vk::PhysicalDeviceType::eDiscreteGpu) return 3;
  if (type == vk::PhysicalDeviceType::eIntegratedGpu) return 2;
  if (type == vk::PhysicalDeviceType::eVirtualGpu) return 1;
  return 0;
}

struct Candidate {
  vk::PhysicalDevice physical;
  Capabilities capabilities;
};

Result<std::vector<Candidate>> find_devices() {
  ZINC_TRY(instance, load_instance());
  std::vector<Candidate> found;
  const auto [code, devices] = instance.enumeratePhysicalDevices();
  if (code != vk::Result::eSuccess) {
    return fail(ErrorCode::unsupported, "cannot list the Vulkan devices: {}", vk::to_string(code));
  }
  for (const vk::PhysicalDevice device : devices) {
    found.push_back({device, query_capabilities(instance, device)});
  }
  return found;
}

Result<Candidate> choose_device(std::string_view name) {
  ZINC_TRY(all, find_devices());
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
  if (best) return *best;
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
  explicit BufferMemory(vk::Device of) : device(of) {}
  ~BufferMemory() override {
    device.destroy(buffer);
    device.free(memory);
  }
  vk::Device device;
  vk::Buffer buffer;
  vk::DeviceMemory memory;
};

constexpr vk::PipelineStageFlags kComputeAndTransfer =
    vk::PipelineStageFlagBits::eComputeShader | vk::PipelineStageFlagBits::eTransfer;
constexpr vk::AccessFlags kWrites = vk::AccessFlagBits::eShaderWrite | vk::AccessFlagBits::eTransferWrite;
constexpr vk::AccessFlags kReads = vk::AccessFlagBits::eShaderRead | vk::AccessFlagBits::eTransferRead;

bool is_out_of_memory(vk::Result code) {
  return code == vk::Result::eErrorOutOfDeviceMemory || code == vk::Result::eErrorOutOfHostMemory;
}

void add_barrier(vk::CommandBuffer commands, vk::PipelineStageFlags before, vk::AccessFlags writes,
                 vk::PipelineStageFlags after, vk::AccessFlags accesses) {
  commands.pipelineBarrier(before, after, {}, vk::MemoryBarrier{.srcAccessMask = writes, .dstAccessMask = accesses},
                           nullptr, nullptr);
}

}  // namespace

vk::Buffer handle_of(const Buffer& buffer) {
  const auto* allocation = static_cast<const BufferMemory*>(buffer.allocation());
  return allocation ? allocation->buffer : nullptr;
}

Result<Device*> Device::shared(std::string_view name) {
  // Never destroyed: at process exit the driver may be unloaded first.
  static auto& opened_devices = *new std::map<vk::PhysicalDevice, std::unique_ptr<Device>>();
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  ZINC_TRY(chosen, choose_device(name));
  std::unique_ptr<Device>& shared = opened_devices[chosen.physical];
  if (shared) return shared.get();
  ZINC_TRY(device, create(chosen.physical, chosen.capabilities, /*with_statistics=*/false));
  if (Status s = device->make_queue(); !s.ok()) return s.error();
  if (Status s = device->make_staging(); !s.ok()) return s.error();
  if (Status s = device->self_test(); !s.ok()) return s.error();
  if (Status s = device->test_dispatch_order(); !s.ok()) return s.error();
  shared = std::move(device);
  return shared.get();
}

bool Device::has_gpu() { return choose_device("").ok(); }

std::vector<Capabilities> Device::all() {
  std::vector<Capabilities> out;
  const Result<std::vector<Candidate>> found = find_devices();
  if (!found.ok()) return out;
  for (const Candidate& device : found.value()) out.push_back(device.capabilities);
  return out;
}

Result<std::unique_ptr<Device>> Device::create(vk::PhysicalDevice physical, const Capabilities& capabilities,
                                               bool with_statistics) {
  std::unique_ptr<Device> device(new Device());
  device->physical_ = physical;
  device->capabilities_ = capabilities;
  if (with_statistics && !device->capabilities_.has_statistics) {
    return fail(ErrorCode::unsupported, "the driver of {} does not report statistics of compiled kernels",
                device->capabilities_.name);
  }
  if (Status s = device->make_device(with_statistics); !s.ok()) return s.error();
  if (Status s = device->make_layouts(); !s.ok()) return s.error();
  if (Status s = device->load_pipeline_cache(); !s.ok()) return s.error();
  return device;
}

Result<std::unique_ptr<Device>> Device::open_for_compilation(std::string_view name) {
  ZINC_TRY(chosen, choose_device(name));
  return create(chosen.physical, chosen.capabilities, /*with_statistics=*/true);
}

Status Device::make_device(bool with_statistics) {
  const std::vector<vk::QueueFamilyProperties> families = physical_.getQueueFamilyProperties();
  const auto family =
      std::ranges::find_if(families, [](const auto& f) { return bool(f.queueFlags & vk::QueueFlagBits::eCompute); });
  if (family == families.end()) return fail(ErrorCode::unsupported, "{} has no compute queue", capabilities_.name);
  queue_family_ = static_cast<uint32_t>(family - families.begin());
  has_timestamps_ = family->timestampValidBits > 0;

  const bool has_coopmat = capabilities_.has_coopmat;
  CooperativeMatrixFeatures matrices{.cooperativeMatrix = VK_TRUE};
  vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR statistics{.pNext = has_coopmat ? &matrices : nullptr,
                                                                       .pipelineExecutableInfo = VK_TRUE};
  vk::PhysicalDeviceVulkan13Features v13{.pNext = with_statistics ? &statistics : statistics.pNext,
                                         .subgroupSizeControl = capabilities_.has_subgroup_control,
                                         .computeFullSubgroups = capabilities_.has_full_subgroups,
                                         .shaderIntegerDotProduct = VK_TRUE,
                                         .maintenance4 = VK_TRUE};
  vk::PhysicalDeviceVulkan12Features v12{.pNext = &v13,
                                         .shaderFloat16 = has_coopmat && capabilities_.has_float16,
                                         .shaderInt8 = has_coopmat && capabilities_.has_int8,
                                         .scalarBlockLayout = VK_TRUE,
                                         .timelineSemaphore = VK_TRUE,
                                         .bufferDeviceAddress = VK_TRUE,
                                         .vulkanMemoryModel = has_coopmat};
  const vk::PhysicalDeviceFeatures2 features{.pNext = &v12, .features = {.shaderInt64 = VK_TRUE}};
  std::vector<const char*> extensions;
  if (capabilities_.has_memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
  if (has_coopmat) extensions.push_back("VK_KHR_cooperative_matrix");
  if (with_statistics) extensions.push_back(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
  const float priority = 1;
  const vk::DeviceQueueCreateInfo queue{
      .queueFamilyIndex = queue_family_, .queueCount = 1, .pQueuePriorities = &priority};
  ZINC_TRY(device, check(physical_.createDevice({.pNext = &features,
                                                 .queueCreateInfoCount = 1,
                                                 .pQueueCreateInfos = &queue,
                                                 .enabledExtensionCount = static_cast<uint32_t>(extensions.size()),
                                                 .ppEnabledExtensionNames = extensions.data()}),
                         "creating the device"));
  device_ = device;
  queue_ = device_.getQueue(queue_family_, 0);
  memory_ = physical_.getMemoryProperties2().memoryProperties;
  return ok_status();
}

Status Device::make_queue() {
  ZINC_TRY(pool, check(device_.createCommandPool({.flags = vk::CommandPoolCreateFlagBits::eResetCommandBuffer,
                                                  .queueFamilyIndex = queue_family_}),
                       "creating a command pool"));
  commands_ = pool;
  const vk::SemaphoreTypeCreateInfo type{.semaphoreType = vk::SemaphoreType::eTimeline};
  ZINC_TRY(timeline, check(device_.createSemaphore({.pNext = &type}), "creating a timeline semaphore"));
  timeline_ = timeline;
  return ok_status();
}

Status Device::make_layouts() {
  const auto binding = [](uint32_t i) {
    return vk::DescriptorSetLayoutBinding{.binding = i,
                                          .descriptorType = vk::DescriptorType::eUniformBufferDynamic,
                                          .descriptorCount = 1,
                                          .stageFlags = vk::ShaderStageFlagBits::eCompute};
  };
  const std::array<vk::DescriptorSetLayoutBinding, 2> bindings = {binding(0), binding(1)};
  ZINC_TRY(set, check(device_.createDescriptorSetLayout({.bindingCount = 2, .pBindings = bindings.data()}),
                      "creating the pipeline layout"));
  set_layout_ = set;
  ZINC_TRY(layout, check(device_.createPipelineLayout({.setLayoutCount = 1, .pSetLayouts = &set_layout_}),
                         "creating the pipeline layout"));
  layout_ = layout;
  return ok_status();
}

Device::~Device() {
  if (!device_) return;
  if (last_timeline_value_ > 0) static_cast<void>(device_.waitIdle());
  staging_ = Buffer();
  readback_ = Buffer();
  for (const auto& [key, pipeline] : pipelines_) device_.destroy(pipeline);
  device_.destroy(pipeline_cache_);
  device_.destroy(layout_);
  device_.destroy(set_layout_);
  device_.destroy(timeline_);
  device_.destroy(commands_);
  device_.destroy();
}

Status Device::check(vk::Result code, std::string_view what) const {
  if (code == vk::Result::eSuccess) return ok_status();
  return fail(is_out_of_memory(code) ? ErrorCode::out_of_memory : ErrorCode::device_lost,
              "{}: {} failed: {} (Vulkan result {})", capabilities_.name, what, vk::to_string(code),
              static_cast<int>(code));
}

Counters Device::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

void Device::count(size_t Counters::*what) {
  const std::lock_guard lock(mutex_);
  ++(counters_.*what);
}

// ---- memory ----

size_t Device::free_bytes() const {
  if (!capabilities_.has_memory_budget) return capabilities_.device_memory_bytes;
  using Budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT;
  const auto memory = physical_.getMemoryProperties2<vk::PhysicalDeviceMemoryProperties2, Budget>();
  const Budget& budget = memory.get<Budget>();
  size_t max_free = 0;
  for (uint32_t i = 0; i < memory_.memoryHeapCount; ++i) {
    if (!(memory_.memoryHeaps[i].flags & vk::MemoryHeapFlagBits::eDeviceLocal)) continue;
    const size_t used = budget.heapUsage[i], total = budget.heapBudget[i];
    max_free = std::max(max_free, total > used ? total - used : 0);
  }
  return max_free;
}

int Device::memory_type(uint32_t allowed, Memory kind) const {
  using Flag = vk::MemoryPropertyFlagBits;
  constexpr vk::MemoryPropertyFlags kHost = Flag::eHostVisible | Flag::eHostCoherent;
  std::vector<vk::MemoryPropertyFlags> preferred;
  if (kind == Memory::device) preferred = {Flag::eDeviceLocal, {}};
  if (kind == Memory::upload) preferred = {kHost | Flag::eDeviceLocal, kHost};
  if (kind == Memory::readback) preferred = {kHost | Flag::eHostCached, kHost};
  for (const vk::MemoryPropertyFlags flags : preferred) {
    for (uint32_t i = 0; i < memory_.memoryTypeCount; ++i) {
      if ((allowed >> i & 1) != 0 && (memory_.memoryTypes[i].propertyFlags & flags) == flags)
        return static_cast<int>(i);
    }
  }
  return -1;
}

bool Device::is_on_device(Memory kind) const {
  if (kind == Memory::device || !has_dedicated_memory(capabilities_)) return true;
  constexpr uint32_t kAnyType = ~0u;
  const auto type = static_cast<size_t>(memory_type(kAnyType, kind));
  return bool(memory_.memoryTypes[type].propertyFlags & vk::MemoryPropertyFlagBits::eDeviceLocal);
}

// At open, so that free_bytes() does not change with the first write.
Status Device::make_staging() {
  ZINC_TRY(staging, allocate(kStagingBytes, "upload staging", Memory::upload));
  ZINC_TRY(readback, allocate(kStagingBytes, "readback staging", Memory::readback));
  staging_ = std::move(staging);
  readback_ = std::move(readback);
  return ok_status();
}

Result<Buffer> Device::allocate(size_t n_bytes, std::string_view what, Memory kind) {
  if (n_bytes == 0) return Buffer();
  if (n_bytes > capabilities_.max_allocation_bytes) {
    return fail(ErrorCode::out_of_memory, "{}: {} bytes for {} exceed this device's maximum allocation of {} bytes",
                capabilities_.name, n_bytes, what, capabilities_.max_allocation_bytes);
  }
  auto allocation = std::make_unique<BufferMemory>(device_);
  using Usage = vk::BufferUsageFlagBits;
  vk::BufferUsageFlags usage =
      Usage::eStorageBuffer | Usage::eTransferSrc | Usage::eTransferDst | Usage::eShaderDeviceAddress;
  if (kind == Memory::upload) usage |= Usage::eUniformBuffer;
  ZINC_TRY(buffer, check(device_.createBuffer({.size = (n_bytes + 15) / 16 * 16, .usage = usage}), what));
  allocation->buffer = buffer;
  const vk::MemoryRequirements needs = device_.getBufferMemoryRequirements(buffer);
  const vk::MemoryAllocateFlagsInfo flags{.flags = vk::MemoryAllocateFlagBits::eDeviceAddress};
  const auto allocated =
      device_.allocateMemory({.pNext = &flags,
                              .allocationSize = needs.size,
                              .memoryTypeIndex = static_cast<uint32_t>(memory_type(needs.memoryTypeBits, kind))});
  if (is_out_of_memory(allocated.result)) {
    return fail(
        ErrorCode::out_of_memory,
        "{}: cannot allocate {} bytes for {}: {} of {} bytes are free; use a smaller model, a smaller quantization "
        "or a shorter context",
        capabilities_.name, n_bytes, what, free_bytes(), capabilities_.device_memory_bytes);
  }
  ZINC_TRY(memory, check(allocated, what));
  allocation->memory = memory;
  count(&Counters::n_allocations);
  if (Status s = check(device_.bindBufferMemory(buffer, memory, 0), what); !s.ok()) return s.error();
  const Address begin = device_.getBufferAddress({.buffer = buffer});
  if (kind != Memory::device) {
    ZINC_TRY(mapped, check(device_.mapMemory(memory, 0, VK_WHOLE_SIZE), what));
    std::memset(mapped, 0, n_bytes);
    return Buffer(std::move(allocation), begin, mapped, n_bytes);
  }
  ZINC_TRY(filled, run([&](vk::CommandBuffer c) { c.fillBuffer(buffer, 0, VK_WHOLE_SIZE, 0); }));
  return Buffer(std::move(allocation), begin, nullptr, n_bytes);
}

Result<TimelineValue> Device::copy(const Buffer& src, size_t src_offset, const Buffer& dst, size_t dst_offset,
                                   size_t n_bytes) {
  const vk::BufferCopy region{src_offset, dst_offset, n_bytes};
  return run([&](vk::CommandBuffer c) { c.copyBuffer(handle_of(src), handle_of(dst), region); });
}

Status Device::copy(std::span<const gpu::BufferCopy> copies) {
  ZINC_TRY(submitted, run([&](vk::CommandBuffer c) {
             for (const gpu::BufferCopy& copy : copies) {
               const vk::BufferCopy region{copy.from_offset, copy.to_offset, copy.n_bytes};
               c.copyBuffer(handle_of(copy.from), handle_of(copy.to), region);
             }
           }));
  return ok_status();
}

Status Device::read(const Buffer& src, size_t offset, std::span<std::byte> dst) {
  const std::lock_guard lock(staging_mutex_);
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
  for (size_t done = 0; done < src.size(); done += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, src.size() - done);
    std::memcpy(staging_.host_ptr<std::byte>(), src.data() + done, n);
    ZINC_TRY(timeline_value, copy(staging_, 0, dst, offset + done, n));
    if (Status s = wait(timeline_value); !s.ok()) return s;
  }
  return ok_status();
}

// ---- commands ----

void add_compute_barrier(vk::CommandBuffer commands) {
  using Access = vk::AccessFlagBits;
  constexpr auto kCompute = vk::PipelineStageFlagBits::eComputeShader;
  add_barrier(commands, kCompute, Access::eShaderWrite, kCompute, Access::eShaderRead | Access::eShaderWrite);
}

// Between a barrier after earlier commands, and one that makes results visible to host reads after the wait.
Status Device::record_into(vk::CommandBuffer commands, vk::CommandBufferUsageFlags usage,
                           const std::function<void(vk::CommandBuffer)>& write) {
  if (Status s = check(commands.begin({.flags = usage}), "recording"); !s.ok()) return s;
  add_barrier(commands, kComputeAndTransfer, kWrites, kComputeAndTransfer, kReads | kWrites);
  write(commands);
  add_barrier(commands, kComputeAndTransfer, kWrites, vk::PipelineStageFlagBits::eHost, vk::AccessFlagBits::eHostRead);
  return check(commands.end(), "recording");
}

Result<vk::CommandBuffer> Device::allocate_commands() {
  ZINC_TRY(allocated,
           check(device_.allocateCommandBuffers({.commandPool = commands_, .commandBufferCount = 1}), "recording"));
  return allocated[0];
}

Result<vk::CommandBuffer> Device::record(const std::function<void(vk::CommandBuffer)>& write) {
  const std::lock_guard lock(mutex_);
  ZINC_TRY(commands, allocate_commands());
  ++counters_.n_recordings;
  if (Status s = record_into(commands, {}, write); !s.ok()) return s.error();
  return commands;
}

void Device::free_commands(vk::CommandBuffer commands) {
  const std::lock_guard lock(mutex_);
  device_.free(commands_, commands);
}

Result<TimelineValue> Device::submit(std::span<const vk::CommandBuffer> commands) {
  const std::lock_guard lock(mutex_);
  return submit_locked(commands);
}

Result<TimelineValue> Device::submit_locked(std::span<const vk::CommandBuffer> commands) {
  const TimelineValue timeline_value = last_timeline_value_ + 1;
  const vk::TimelineSemaphoreSubmitInfo values{.signalSemaphoreValueCount = 1,
                                               .pSignalSemaphoreValues = &timeline_value};
  const vk::SubmitInfo info{.pNext = &values,
                            .commandBufferCount = static_cast<uint32_t>(commands.size()),
                            .pCommandBuffers = commands.data(),
                            .signalSemaphoreCount = 1,
                            .pSignalSemaphores = &timeline_};
  if (Status s = check(queue_.submit(info), "submitting commands"); !s.ok()) return s.error();
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

Result<TimelineValue> Device::run(const std::function<void(vk::CommandBuffer)>& write) {
  ZINC_TRY(one_time, acquire_one_time());
  Status ready = wait(one_time.timeline_value);
  const std::lock_guard lock(mutex_);
  if (ready.ok()) ready = record_into(one_time.commands, vk::CommandBufferUsageFlagBits::eOneTimeSubmit, write);
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
  const vk::Result result =
      device_.waitSemaphores({.semaphoreCount = 1, .pSemaphores = &timeline_, .pValues = &timeline_value}, kMaxWaitNs);
  if (result == vk::Result::eTimeout) {
    return fail(ErrorCode::device_lost,
                "{}: a submission has not completed after ten minutes; the driver may have hung", capabilities_.name);
  }
  return check(result, "waiting for the timeline semaphore");
}

}  // namespace zinc::vulkan
