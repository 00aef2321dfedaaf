// Vulkan loader and driver on the host, as far as src/backend/vulkan uses them. Device memory is host memory; a
// submission is complete when vkQueueSubmit returns. Dispatches without a barrier between them run concurrently:
// several workgroups, started in order, are interleaved, the latest first. ZINC_EMULATED_VULKAN selects the GPU
// (kGpus).
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>

#include "backend/vulkan/api.h"
#include "tests/emulated_vulkan/workgroup.h"

using namespace zinc::emulated_vulkan;
using zinc::vulkan::CooperativeMatrixFeatures;
using zinc::vulkan::CooperativeMatrixProperties;

namespace {

struct EmulatedGpu {
  std::string_view name;
  uint32_t vendor_id;
  uint32_t matrix_depth;  // K of int8 matrices; 0: f16 matrices only
  uint32_t shared_bytes;
  // Workgroups of dispatches without a barrier between them; if false, the last dispatch starts first.
  bool starts_in_order = true;
};
constexpr std::array<EmulatedGpu, 4> kGpus = {{{"nvidia", 0x10DE, 32, 48 << 10},
                                               {"unordered", 0x10DE, 32, 48 << 10, false},
                                               {"amd", 0x1002, 16, 64 << 10},
                                               {"intel", 0x8086, 0, 32 << 10}}};

const EmulatedGpu& gpu() {
  static const EmulatedGpu& selected = [&]() -> const EmulatedGpu& {
    const char* name = std::getenv("ZINC_EMULATED_VULKAN");
    const auto* found = std::ranges::find(kGpus, name ? name : "nvidia", &EmulatedGpu::name);
    if (found == kGpus.end()) fault("ZINC_EMULATED_VULKAN names an unknown GPU; use nvidia, unordered, amd or intel");
    return *found;
  }();
  return selected;
}

constexpr size_t kMemoryBytes = size_t{8} << 30;
constexpr size_t kMaxAllocationBytes = size_t{256} << 20;  // of one buffer; real drivers have 4 GiB or less

// ---- objects ----

// Ends at a guard page, so that an access past the end faults.
struct Memory {
  static constexpr size_t kPage = 4096, kAlignment = 256;
  explicit Memory(size_t n) {
    const size_t n_aligned = (n + kAlignment - 1) / kAlignment * kAlignment;
    mapped = (n_aligned + kPage - 1) / kPage * kPage + kPage;
    begin = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) return;
    std::byte* end = static_cast<std::byte*>(begin) + mapped - kPage;
    mprotect(end, kPage, PROT_NONE);
    data = end - n_aligned;
    std::memset(data, 0xFF, n_aligned);  // stale contents: NaN in every format
  }
  ~Memory() {
    if (data) munmap(begin, mapped);
  }
  Memory(const Memory&) = delete;
  void* begin = nullptr;
  size_t mapped = 0;
  std::byte* data = nullptr;
};

struct Buffer {
  size_t n_bytes;
  std::byte* data;
};
struct Module {
  std::vector<uint32_t> words;
};
struct Set {
  std::array<const Buffer*, 2> buffers{};
};
struct Pool {
  std::deque<Set> sets;
};
struct Dispatch {
  const Program* program;
  Dim3 grid;
  std::array<uint64_t, 2> uniforms;  // addresses of the bound uniform blocks
};
struct Command {
  enum class Kind : uint8_t { copy, fill, barrier, pipeline, uniforms, dispatch } kind;
  std::byte *from = nullptr, *to = nullptr;
  size_t n_bytes = 0;
  uint32_t value = 0;
  const Program* program = nullptr;
  std::array<uint64_t, 2> uniforms{};
  Dim3 grid{};
};
struct Commands {
  std::vector<Command> list;
};
struct Timeline {
  uint64_t value = 0;
};

template <class Handle, class T>
Handle handle(T* object) {
  return reinterpret_cast<Handle>(object);
}
template <class T, class Handle>
T* object(Handle handle) {
  return reinterpret_cast<T*>(handle);
}
template <class T, class Handle>
void destroy(VkDevice, Handle handle, const VkAllocationCallbacks*) {
  delete object<T>(handle);
}

// ---- execution ----

std::mutex submit_mutex;

struct RunningWorkgroup {
  std::unique_ptr<Workgroup> workgroup;
  const Program* program;
};
DeviceWrites device_writes;
std::vector<RunningWorkgroup> idle;  // finished workgroups, for reuse by the same kernel; oldest first

// Dispatches between two barriers.
void run(std::vector<Dispatch> dispatches) {
  constexpr size_t kConcurrentWorkgroups = 3, kMaxIdle = 32;
  constexpr int kSliceInstructions = 3000;
  if (!gpu().starts_in_order) std::ranges::reverse(dispatches);
  std::vector<RunningWorkgroup> running;
  size_t d = 0;
  uint64_t next = 0;
  const auto start_next_workgroup = [&] {
    const Dispatch& dispatch = dispatches[d];
    const auto [nx, ny, nz] = dispatch.grid;
    const Dim3 id{static_cast<uint32_t>(next % nx), static_cast<uint32_t>(next / nx % ny),
                  static_cast<uint32_t>(next / nx / ny)};
    const auto reusable = std::ranges::find(idle, dispatch.program, &RunningWorkgroup::program);
    RunningWorkgroup workgroup{nullptr, dispatch.program};
    if (reusable != idle.end()) {
      workgroup = std::move(*reusable);
      idle.erase(reusable);
    } else {
      workgroup.workgroup = std::make_unique<Workgroup>(device_writes);
    }
    workgroup.workgroup->begin(*dispatch.program, id, dispatch.grid, dispatch.uniforms);
    running.push_back(std::move(workgroup));
    if (++next < uint64_t{nx} * ny * nz) return;
    next = 0;
    ++d;
  };
  while (d < dispatches.size() || !running.empty()) {
    while (d < dispatches.size() && running.size() < kConcurrentWorkgroups) start_next_workgroup();
    for (size_t i = running.size(); i-- > 0;) {
      if (running[i].workgroup->run(kSliceInstructions)) continue;
      if (idle.size() == kMaxIdle) idle.erase(idle.begin());
      idle.push_back(std::move(running[i]));
      running.erase(running.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  device_writes.pass_barrier();
}

void run(const Commands& commands) {
  std::vector<Dispatch> pending;
  const Program* program = nullptr;
  std::array<uint64_t, 2> uniforms{};
  const auto finish = [&] {
    run(pending);
    pending.clear();
  };
  for (const Command& c : commands.list) {
    switch (c.kind) {
      case Command::Kind::copy:
        finish();
        std::memcpy(c.to, c.from, c.n_bytes);
        break;
      case Command::Kind::fill:
        finish();
        for (size_t i = 0; i < c.n_bytes; i += 4) std::memcpy(c.to + i, &c.value, 4);
        break;
      case Command::Kind::barrier:
        finish();
        break;
      case Command::Kind::pipeline:
        program = c.program;
        break;
      case Command::Kind::uniforms:
        uniforms = c.uniforms;
        break;
      case Command::Kind::dispatch:
        if (c.grid.x * c.grid.y * c.grid.z > 0) pending.push_back({program, c.grid, uniforms});
        break;
    }
  }
  finish();
}

// ---- instance ----

template <class F>
void for_chain(void* first, F f) {
  for (auto* s = static_cast<VkBaseOutStructure*>(first); s; s = s->pNext) f(s);
}

VkResult CreateInstance(const VkInstanceCreateInfo*, const VkAllocationCallbacks*, VkInstance* out) {
  static int instance;
  *out = handle<VkInstance>(&instance);
  return VK_SUCCESS;
}

VkResult EnumeratePhysicalDevices(VkInstance, uint32_t* n, VkPhysicalDevice* out) {
  static int device;
  if (out) *out = handle<VkPhysicalDevice>(&device);
  *n = 1;
  return VK_SUCCESS;
}

void GetPhysicalDeviceProperties2(VkPhysicalDevice, VkPhysicalDeviceProperties2* out) {
  VkPhysicalDeviceProperties& p = out->properties;
  p.apiVersion = VK_API_VERSION_1_3;
  p.driverVersion = 1;
  p.vendorID = gpu().vendor_id;
  p.deviceID = 1;
  p.deviceType = VK_PHYSICAL_DEVICE_TYPE_CPU;  // selected only by name
  std::snprintf(p.deviceName, sizeof(p.deviceName), "emulated %s", gpu().name.data());
  p.limits.maxComputeSharedMemorySize = gpu().shared_bytes;
  p.limits.minUniformBufferOffsetAlignment = 64;
  p.limits.timestampPeriod = 1;
  for_chain(out->pNext, [](VkBaseOutStructure* s) {
    if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES) {
      auto* v = reinterpret_cast<VkPhysicalDeviceVulkan11Properties*>(s);
      v->subgroupSize = kLanes;
      v->subgroupSupportedOperations = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
      v->maxMemoryAllocationSize = kMaxAllocationBytes;
    } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES) {
      auto* v = reinterpret_cast<VkPhysicalDeviceVulkan12Properties*>(s);
      std::strcpy(v->driverName, "tests/emulated_vulkan");
    } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES) {
      auto* v = reinterpret_cast<VkPhysicalDeviceVulkan13Properties*>(s);
      v->minSubgroupSize = v->maxSubgroupSize = kLanes;
      v->requiredSubgroupSizeStages = VK_SHADER_STAGE_COMPUTE_BIT;
      v->integerDotProduct4x8BitPackedSignedAccelerated = VK_TRUE;
      v->maxBufferSize = kMemoryBytes;
    }
  });
}

void GetPhysicalDeviceFeatures2(VkPhysicalDevice, VkPhysicalDeviceFeatures2* out) {
  out->features.shaderInt64 = VK_TRUE;
  for_chain(out->pNext, [](VkBaseOutStructure* s) {
    if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES) {
      auto* v = reinterpret_cast<VkPhysicalDeviceVulkan12Features*>(s);
      v->bufferDeviceAddress = v->scalarBlockLayout = v->timelineSemaphore = VK_TRUE;
      v->shaderInt8 = v->shaderFloat16 = v->vulkanMemoryModel = VK_TRUE;
    } else if (s->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES) {
      auto* v = reinterpret_cast<VkPhysicalDeviceVulkan13Features*>(s);
      v->shaderIntegerDotProduct = v->computeFullSubgroups = v->subgroupSizeControl = v->maintenance4 = VK_TRUE;
    } else if (s->sType == CooperativeMatrixFeatures::kType) {
      reinterpret_cast<CooperativeMatrixFeatures*>(s)->cooperativeMatrix = VK_TRUE;
    }
  });
}

VkResult GetPhysicalDeviceCooperativeMatrixPropertiesKHR(VkPhysicalDevice, uint32_t* n,
                                                         CooperativeMatrixProperties* out) {
  using Row = CooperativeMatrixProperties;
  std::vector<Row> rows(1);
  rows[0] = {.m = 16,
             .n = 16,
             .k = 16,
             .a = Row::kFloat16,
             .b = Row::kFloat16,
             .c = Row::kFloat32,
             .result = Row::kFloat32,
             .scope = Row::kSubgroup};
  if (gpu().matrix_depth > 0) {
    rows.push_back({.m = 16,
                    .n = 16,
                    .k = gpu().matrix_depth,
                    .a = Row::kSigned8,
                    .b = Row::kSigned8,
                    .c = Row::kSigned32,
                    .result = Row::kSigned32,
                    .scope = Row::kSubgroup});
  }
  *n = static_cast<uint32_t>(rows.size());
  if (out) std::ranges::copy(rows, out);
  return VK_SUCCESS;
}

void GetPhysicalDeviceMemoryProperties2(VkPhysicalDevice, VkPhysicalDeviceMemoryProperties2* out) {
  VkPhysicalDeviceMemoryProperties& p = out->memoryProperties;
  p.memoryHeapCount = p.memoryTypeCount = 1;
  p.memoryHeaps[0] = {kMemoryBytes, VK_MEMORY_HEAP_DEVICE_LOCAL_BIT};
  p.memoryTypes[0] = {VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                          VK_MEMORY_PROPERTY_HOST_COHERENT_BIT | VK_MEMORY_PROPERTY_HOST_CACHED_BIT,
                      0};
}

void GetPhysicalDeviceQueueFamilyProperties(VkPhysicalDevice, uint32_t* n, VkQueueFamilyProperties* out) {
  *n = 1;
  if (out) *out = {VK_QUEUE_COMPUTE_BIT | VK_QUEUE_TRANSFER_BIT, 1, 64, {1, 1, 1}};
}

VkResult EnumerateDeviceExtensionProperties(VkPhysicalDevice, const char*, uint32_t* n, VkExtensionProperties* out) {
  *n = 1;
  if (out) std::strcpy(out->extensionName, "VK_KHR_cooperative_matrix");
  return VK_SUCCESS;
}

// ---- device ----

VkResult CreateDevice(VkPhysicalDevice, const VkDeviceCreateInfo*, const VkAllocationCallbacks*, VkDevice* out) {
  static int device;
  *out = handle<VkDevice>(&device);
  return VK_SUCCESS;
}
void DestroyDevice(VkDevice, const VkAllocationCallbacks*) {}
void GetDeviceQueue(VkDevice, uint32_t, uint32_t, VkQueue* out) {
  static int queue;
  *out = handle<VkQueue>(&queue);
}
VkResult DeviceWaitIdle(VkDevice) { return VK_SUCCESS; }

VkResult AllocateMemory(VkDevice, const VkMemoryAllocateInfo* info, const VkAllocationCallbacks*, VkDeviceMemory* out) {
  if (info->allocationSize > kMaxAllocationBytes) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  auto memory = std::make_unique<Memory>(info->allocationSize);
  if (!memory->data) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
  *out = handle<VkDeviceMemory>(memory.release());
  return VK_SUCCESS;
}
VkResult MapMemory(VkDevice, VkDeviceMemory memory, VkDeviceSize, VkDeviceSize, VkMemoryMapFlags, void** out) {
  *out = object<Memory>(memory)->data;
  return VK_SUCCESS;
}
VkResult CreateBuffer(VkDevice, const VkBufferCreateInfo* info, const VkAllocationCallbacks*, VkBuffer* out) {
  *out = handle<VkBuffer>(new Buffer{info->size, nullptr});
  return VK_SUCCESS;
}
void GetBufferMemoryRequirements(VkDevice, VkBuffer buffer, VkMemoryRequirements* out) {
  *out = {object<Buffer>(buffer)->n_bytes, 256, 1};
}
VkResult BindBufferMemory(VkDevice, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize) {
  object<Buffer>(buffer)->data = object<Memory>(memory)->data;
  return VK_SUCCESS;
}
VkDeviceAddress GetBufferDeviceAddress(VkDevice, const VkBufferDeviceAddressInfo* info) {
  return reinterpret_cast<VkDeviceAddress>(object<Buffer>(info->buffer)->data);
}

// ---- pipelines and descriptors ----

VkResult CreateShaderModule(VkDevice, const VkShaderModuleCreateInfo* info, const VkAllocationCallbacks*,
                            VkShaderModule* out) {
  *out = handle<VkShaderModule>(new Module{{info->pCode, info->pCode + info->codeSize / 4}});
  return VK_SUCCESS;
}
VkResult CreateComputePipelines(VkDevice, VkPipelineCache, uint32_t, const VkComputePipelineCreateInfo* info,
                                const VkAllocationCallbacks*, VkPipeline* out) {
  std::map<uint32_t, uint32_t> constants;
  if (const VkSpecializationInfo* given_constants = info->stage.pSpecializationInfo) {
    for (uint32_t i = 0; i < given_constants->mapEntryCount; ++i) {
      const VkSpecializationMapEntry& entry = given_constants->pMapEntries[i];
      std::memcpy(&constants[entry.constantID], static_cast<const std::byte*>(given_constants->pData) + entry.offset,
                  4);
    }
  }
  auto* program = new Program(decode(object<Module>(info->stage.module)->words, constants));
  if (program->shared_bytes > gpu().shared_bytes) {
    fault(program->name + " uses " + std::to_string(program->shared_bytes) +
          " bytes of shared memory, more than the GPU has");
  }
  *out = handle<VkPipeline>(program);
  return VK_SUCCESS;
}

void DestroyPipeline(VkDevice, VkPipeline pipeline, const VkAllocationCallbacks*) {
  std::erase_if(idle, [&](const RunningWorkgroup& r) { return r.program == object<Program>(pipeline); });
  delete object<Program>(pipeline);
}

template <class Info, class Handle>
VkResult create_stub(VkDevice, const Info*, const VkAllocationCallbacks*, Handle* out) {
  static int thing;
  *out = handle<Handle>(&thing);
  return VK_SUCCESS;
}
template <class Handle>
void destroy_stub(VkDevice, Handle, const VkAllocationCallbacks*) {}

VkResult GetPipelineCacheData(VkDevice, VkPipelineCache, size_t* n, void*) {
  *n = 0;
  return VK_SUCCESS;
}
VkResult CreateDescriptorPool(VkDevice, const VkDescriptorPoolCreateInfo*, const VkAllocationCallbacks*,
                              VkDescriptorPool* out) {
  *out = handle<VkDescriptorPool>(new Pool);
  return VK_SUCCESS;
}
VkResult AllocateDescriptorSets(VkDevice, const VkDescriptorSetAllocateInfo* info, VkDescriptorSet* out) {
  *out = handle<VkDescriptorSet>(&object<Pool>(info->descriptorPool)->sets.emplace_back());
  return VK_SUCCESS;
}
void UpdateDescriptorSets(VkDevice, uint32_t n, const VkWriteDescriptorSet* writes, uint32_t,
                          const VkCopyDescriptorSet*) {
  for (uint32_t i = 0; i < n; ++i) {
    object<Set>(writes[i].dstSet)->buffers.at(writes[i].dstBinding) = object<Buffer>(writes[i].pBufferInfo->buffer);
  }
}

// ---- commands ----

VkResult AllocateCommandBuffers(VkDevice, const VkCommandBufferAllocateInfo*, VkCommandBuffer* out) {
  *out = handle<VkCommandBuffer>(new Commands);
  return VK_SUCCESS;
}
void FreeCommandBuffers(VkDevice, VkCommandPool, uint32_t n, const VkCommandBuffer* commands) {
  for (uint32_t i = 0; i < n; ++i) delete object<Commands>(commands[i]);
}
VkResult BeginCommandBuffer(VkCommandBuffer commands, const VkCommandBufferBeginInfo*) {
  object<Commands>(commands)->list.clear();
  return VK_SUCCESS;
}
VkResult EndCommandBuffer(VkCommandBuffer) { return VK_SUCCESS; }
void add(VkCommandBuffer commands, const Command& command) { object<Commands>(commands)->list.push_back(command); }

void CmdCopyBuffer(VkCommandBuffer c, VkBuffer from, VkBuffer to, uint32_t n, const VkBufferCopy* regions) {
  for (uint32_t i = 0; i < n; ++i) {
    const VkBufferCopy& region = regions[i];
    if (region.srcOffset + region.size > object<Buffer>(from)->n_bytes ||
        region.dstOffset + region.size > object<Buffer>(to)->n_bytes) {
      fault("a copy past the end of a buffer");
    }
    add(c, {.kind = Command::Kind::copy,
            .from = object<Buffer>(from)->data + region.srcOffset,
            .to = object<Buffer>(to)->data + region.dstOffset,
            .n_bytes = region.size});
  }
}
void CmdFillBuffer(VkCommandBuffer c, VkBuffer to, VkDeviceSize offset, VkDeviceSize n, uint32_t value) {
  const Buffer& buffer = *object<Buffer>(to);
  const size_t n_bytes = n == VK_WHOLE_SIZE ? (buffer.n_bytes - offset) / 4 * 4 : n;
  add(c, {.kind = Command::Kind::fill, .to = buffer.data + offset, .n_bytes = n_bytes, .value = value});
}
void CmdPipelineBarrier(VkCommandBuffer c, VkPipelineStageFlags, VkPipelineStageFlags, VkDependencyFlags, uint32_t,
                        const VkMemoryBarrier*, uint32_t, const VkBufferMemoryBarrier*, uint32_t,
                        const VkImageMemoryBarrier*) {
  add(c, {.kind = Command::Kind::barrier});
}
void CmdBindPipeline(VkCommandBuffer c, VkPipelineBindPoint, VkPipeline pipeline) {
  add(c, {.kind = Command::Kind::pipeline, .program = object<Program>(pipeline)});
}
void CmdBindDescriptorSets(VkCommandBuffer c, VkPipelineBindPoint, VkPipelineLayout, uint32_t, uint32_t,
                           const VkDescriptorSet* sets, uint32_t, const uint32_t* offsets) {
  Command command{.kind = Command::Kind::uniforms};
  for (size_t i = 0; i < command.uniforms.size(); ++i) {
    command.uniforms[i] = reinterpret_cast<uint64_t>(object<Set>(*sets)->buffers[i]->data + offsets[i]);
  }
  add(c, command);
}
void CmdDispatch(VkCommandBuffer c, uint32_t x, uint32_t y, uint32_t z) {
  add(c, {.kind = Command::Kind::dispatch, .grid = {x, y, z}});
}
void CmdResetQueryPool(VkCommandBuffer, VkQueryPool, uint32_t, uint32_t) {}
void CmdWriteTimestamp(VkCommandBuffer, VkPipelineStageFlagBits, VkQueryPool, uint32_t) {}
VkResult GetQueryPoolResults(VkDevice, VkQueryPool, uint32_t, uint32_t, size_t n_bytes, void* out, VkDeviceSize,
                             VkQueryResultFlags) {
  std::memset(out, 0, n_bytes);
  return VK_SUCCESS;
}

VkResult CreateSemaphore(VkDevice, const VkSemaphoreCreateInfo*, const VkAllocationCallbacks*, VkSemaphore* out) {
  *out = handle<VkSemaphore>(new Timeline);
  return VK_SUCCESS;
}
VkResult QueueSubmit(VkQueue, uint32_t n, const VkSubmitInfo* submits, VkFence) {
  const std::lock_guard lock(submit_mutex);
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t k = 0; k < submits[i].commandBufferCount; ++k) run(*object<Commands>(submits[i].pCommandBuffers[k]));
    const auto* values = static_cast<const VkTimelineSemaphoreSubmitInfo*>(submits[i].pNext);
    object<Timeline>(submits[i].pSignalSemaphores[0])->value = values->pSignalSemaphoreValues[0];
  }
  return VK_SUCCESS;
}
VkResult WaitSemaphores(VkDevice, const VkSemaphoreWaitInfo* info, uint64_t) {
  return object<Timeline>(info->pSemaphores[0])->value >= info->pValues[0] ? VK_SUCCESS : VK_TIMEOUT;
}

constexpr auto FreeMemory = destroy<Memory, VkDeviceMemory>;
constexpr auto DestroyBuffer = destroy<Buffer, VkBuffer>;
constexpr auto DestroyShaderModule = destroy<Module, VkShaderModule>;
constexpr auto DestroyDescriptorPool = destroy<Pool, VkDescriptorPool>;
constexpr auto DestroySemaphore = destroy<Timeline, VkSemaphore>;
constexpr auto CreateCommandPool = create_stub<VkCommandPoolCreateInfo, VkCommandPool>;
constexpr auto CreateQueryPool = create_stub<VkQueryPoolCreateInfo, VkQueryPool>;
constexpr auto CreateDescriptorSetLayout = create_stub<VkDescriptorSetLayoutCreateInfo, VkDescriptorSetLayout>;
constexpr auto CreatePipelineLayout = create_stub<VkPipelineLayoutCreateInfo, VkPipelineLayout>;
constexpr auto CreatePipelineCache = create_stub<VkPipelineCacheCreateInfo, VkPipelineCache>;
constexpr auto DestroyCommandPool = destroy_stub<VkCommandPool>;
constexpr auto DestroyQueryPool = destroy_stub<VkQueryPool>;
constexpr auto DestroyDescriptorSetLayout = destroy_stub<VkDescriptorSetLayout>;
constexpr auto DestroyPipelineLayout = destroy_stub<VkPipelineLayout>;
constexpr auto DestroyPipelineCache = destroy_stub<VkPipelineCache>;

PFN_vkVoidFunction GetDeviceProcAddr(VkDevice, const char* name);

PFN_vkVoidFunction find(std::string_view name) {
#define X(function) \
  if (name == "vk" #function) return reinterpret_cast<PFN_vkVoidFunction>(+function);
  X(CreateInstance)
  X(GetPhysicalDeviceCooperativeMatrixPropertiesKHR)
  X(EnumeratePhysicalDevices)
  X(GetPhysicalDeviceProperties2)
  X(GetPhysicalDeviceFeatures2)
  X(GetPhysicalDeviceMemoryProperties2)
  X(GetPhysicalDeviceQueueFamilyProperties)
  X(EnumerateDeviceExtensionProperties)
  X(CreateDevice)
  X(GetDeviceProcAddr)
  X(DestroyDevice)
  X(GetDeviceQueue)
  X(QueueSubmit)
  X(DeviceWaitIdle)
  X(AllocateMemory)
  X(FreeMemory)
  X(MapMemory)
  X(CreateBuffer)
  X(DestroyBuffer)
  X(GetBufferMemoryRequirements)
  X(BindBufferMemory)
  X(GetBufferDeviceAddress)
  X(CreateCommandPool)
  X(DestroyCommandPool)
  X(AllocateCommandBuffers)
  X(FreeCommandBuffers)
  X(BeginCommandBuffer)
  X(EndCommandBuffer)
  X(CmdCopyBuffer)
  X(CmdFillBuffer)
  X(CmdPipelineBarrier)
  X(CmdBindPipeline)
  X(CmdBindDescriptorSets)
  X(CmdDispatch)
  X(CmdResetQueryPool)
  X(CmdWriteTimestamp)
  X(CreateQueryPool)
  X(DestroyQueryPool)
  X(GetQueryPoolResults)
  X(CreateSemaphore)
  X(DestroySemaphore)
  X(WaitSemaphores)
  X(CreateShaderModule)
  X(DestroyShaderModule)
  X(CreateDescriptorSetLayout)
  X(DestroyDescriptorSetLayout)
  X(CreateDescriptorPool)
  X(DestroyDescriptorPool)
  X(AllocateDescriptorSets)
  X(UpdateDescriptorSets)
  X(CreatePipelineLayout)
  X(DestroyPipelineLayout)
  X(CreatePipelineCache)
  X(DestroyPipelineCache)
  X(GetPipelineCacheData)
  X(CreateComputePipelines)
  X(DestroyPipeline)
#undef X
  return nullptr;
}
PFN_vkVoidFunction GetDeviceProcAddr(VkDevice, const char* name) { return find(name); }

}  // namespace

extern "C" __attribute__((visibility("default"))) PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance,
                                                                                           const char* name) {
  return find(name);
}
