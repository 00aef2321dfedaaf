// Pipelines of the device: compilation, the cache on disk, and the self-test at open.
#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "backend/vulkan/device.h"
#include "backend/vulkan/kernels.h"
#include "backend/vulkan/params/device_tests.h"
#include "base/atomic_file.h"
#include "base/cache_folder.h"

namespace zinc::vulkan {

void Device::free_descriptor_set(const DescriptorSet& set) {
  if (set.pool) api_.DestroyDescriptorPool(device_, set.pool, nullptr);
}

Result<DescriptorSet> Device::make_descriptor_set(const Buffer& params, const Buffer& steps) {
  VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC, 2};
  VkDescriptorPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
  info.maxSets = 1;
  info.poolSizeCount = 1;
  info.pPoolSizes = &size;
  VkDescriptorPool pool = VK_NULL_HANDLE;
  if (Status s = check(api_.CreateDescriptorPool(device_, &info, nullptr, &pool), "creating a descriptor set");
      !s.ok()) {
    return s.error();
  }
  VkDescriptorSetAllocateInfo allocate_info{};
  allocate_info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  allocate_info.descriptorPool = pool;
  allocate_info.descriptorSetCount = 1;
  allocate_info.pSetLayouts = &set_layout_;
  VkDescriptorSet set = VK_NULL_HANDLE;
  if (Status s = check(api_.AllocateDescriptorSets(device_, &allocate_info, &set), "creating a descriptor set");
      !s.ok()) {
    api_.DestroyDescriptorPool(device_, pool, nullptr);
    return s.error();
  }
  count(&Counters::n_descriptor_sets);
  const std::array<VkDescriptorBufferInfo, 2> buffers = {
      {{handle_of(params), 0, kMaxParamsBytes}, {handle_of(steps), 0, kMaxParamsBytes}}};
  std::array<VkWriteDescriptorSet, 2> writes{};
  for (uint32_t i = 0; i < writes.size(); ++i) {
    writes[i].sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    writes[i].dstSet = set;
    writes[i].dstBinding = i;
    writes[i].descriptorCount = 1;
    writes[i].descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC;
    writes[i].pBufferInfo = &buffers[i];
  }
  api_.UpdateDescriptorSets(device_, static_cast<uint32_t>(writes.size()), writes.data(), 0, nullptr);
  return DescriptorSet{pool, set};
}

Result<VkPipeline> Device::pipeline(const KernelKey& key) {
  const std::lock_guard lock(pipelines_mutex_);
  if (const auto found = pipelines_.find(key); found != pipelines_.end()) return found->second;
  ZINC_TRY(compiled, compile(key, 0));
  pipelines_.emplace(key, compiled);
  return compiled;
}

Result<VkPipeline> Device::compile(const KernelKey& key, VkPipelineCreateFlags flags) {
  const std::span<const uint32_t> words = find_kernel(key.module);
  ZINC_CHECK(!words.empty());
  VkShaderModuleCreateInfo module_info{};
  module_info.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  module_info.codeSize = words.size_bytes();
  module_info.pCode = words.data();
  VkShaderModule module = VK_NULL_HANDLE;
  const std::string what = "compiling kernel " + key.module;
  if (Status s = check(api_.CreateShaderModule(device_, &module_info, nullptr, &module), what); !s.ok()) {
    return s.error();
  }
  std::vector<int32_t> values = {subgroup_size(capabilities_)};
  std::vector<VkSpecializationMapEntry> entries = {{kSpecSubgroupSize, 0, sizeof(int32_t)}};
  for (const auto& [id, value] : key.constants) {
    entries.push_back({id, static_cast<uint32_t>(values.size() * sizeof(int32_t)), sizeof(int32_t)});
    values.push_back(value);
  }
  const VkSpecializationInfo constants{static_cast<uint32_t>(entries.size()), entries.data(),
                                       values.size() * sizeof(int32_t), values.data()};
  VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{};
  subgroup.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO;
  subgroup.requiredSubgroupSize = static_cast<uint32_t>(values[0]);
  VkPipelineCreationFeedback feedback{}, stage_feedback{};
  VkPipelineCreationFeedbackCreateInfo feedback_info{};
  feedback_info.sType = VK_STRUCTURE_TYPE_PIPELINE_CREATION_FEEDBACK_CREATE_INFO;
  feedback_info.pPipelineCreationFeedback = &feedback;
  feedback_info.pipelineStageCreationFeedbackCount = 1;
  feedback_info.pPipelineStageCreationFeedbacks = &stage_feedback;
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.pNext = &feedback_info;
  info.flags = flags;
  info.layout = layout_;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &constants;
  if (capabilities_.has_subgroup_control) info.stage.pNext = &subgroup;
  if (capabilities_.has_full_subgroups) info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  VkPipeline compiled = VK_NULL_HANDLE;
  const VkResult code = api_.CreateComputePipelines(device_, pipeline_cache_, 1, &info, nullptr, &compiled);
  api_.DestroyShaderModule(device_, module, nullptr);
  if (Status s = check(code, what); !s.ok()) return s.error();
  count(&Counters::n_pipelines);
  const bool was_cached = (feedback.flags & VK_PIPELINE_CREATION_FEEDBACK_APPLICATION_PIPELINE_CACHE_HIT_BIT) != 0;
  if (!was_cached) count(&Counters::n_compiled);
  return compiled;
}

// The name covers everything that the driver's machine code depends on.
std::filesystem::path Device::pipeline_cache_path() const {
  std::string name = fmt::format("vulkan-{:04x}-{:04x}-{:08x}-{:016x}-", capabilities_.vendor_id,
                                 capabilities_.device_id, capabilities_.driver_version, kernels_hash());
  for (const uint8_t byte : capabilities_.cache_id) name += fmt::format("{:02x}", byte);
  return get_cache_folder() / (name + ".pipelines");
}

Status Device::load_pipeline_cache() {
  std::string bytes;
  if (!get_cache_folder().empty()) {
    std::ifstream file(pipeline_cache_path(), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = bytes.size();
  info.pInitialData = bytes.data();
  if (api_.CreatePipelineCache(device_, &info, nullptr, &pipeline_cache_) == VK_SUCCESS) return ok_status();
  info.initialDataSize = 0;  // a damaged file only costs recompilation
  return check(api_.CreatePipelineCache(device_, &info, nullptr, &pipeline_cache_), "creating a pipeline cache");
}

void Device::save_pipeline_cache() const {
  const std::lock_guard lock(pipelines_mutex_);
  const size_t n_compiled = counters().n_compiled;
  if (get_cache_folder().empty() || n_compiled == n_saved_) return;
  n_saved_ = n_compiled;
  size_t n_bytes = 0;
  if (api_.GetPipelineCacheData(device_, pipeline_cache_, &n_bytes, nullptr) != VK_SUCCESS) return;
  std::string bytes(n_bytes, '\0');
  if (api_.GetPipelineCacheData(device_, pipeline_cache_, &n_bytes, bytes.data()) != VK_SUCCESS) return;
  bytes.resize(n_bytes);
  std::error_code ignored;  // if writing fails, the next start recompiles
  std::filesystem::create_directories(get_cache_folder(), ignored);
  [[maybe_unused]] const Status saved = write_file_atomically(pipeline_cache_path(), bytes);
}

// ---- self-test ----

Status Device::self_test() {
  ZINC_TRY(memory, allocate(2 * kMaxParamsBytes + kThreads * 5 * sizeof(int), "the self-test", Memory::upload));
  uint32_t* from = memory.host_ptr<uint32_t>() + 2 * kMaxParamsBytes / sizeof(uint32_t);
  const int* out = reinterpret_cast<const int*>(from + kThreads);
  for (uint32_t i = 0; i < kThreads; ++i) from[i] = i * 2654435761u;
  const Address data_address = memory.address() + 2 * kMaxParamsBytes;
  *memory.host_ptr<shader::SelfTestParams>() = {.from = data_address, .out = data_address + kThreads * sizeof(int)};
  ZINC_TRY(set, make_descriptor_set(memory, memory));
  ZINC_TRY(kernel, pipeline({"self_test", {}}));
  ZINC_TRY(timeline_value, run([&](VkCommandBuffer c) {
             const std::array<uint32_t, 2> offsets = {0, static_cast<uint32_t>(kMaxParamsBytes)};
             api_.CmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, kernel);
             api_.CmdBindDescriptorSets(c, VK_PIPELINE_BIND_POINT_COMPUTE, layout_, 0, 1, &set.set, 2, offsets.data());
             api_.CmdDispatch(c, 1, 1, 1);
           }));
  const Status waited = wait(timeline_value);
  free_descriptor_set(set);
  if (!waited.ok()) return waited;
  for (int i = 0; i < kThreads; ++i) {
    const auto word = [&](int k) { return static_cast<int>(from[k] & 1023u); };
    int dot = 0, sum = 0, sum8 = 0, max_word = 0;
    constexpr std::array<int, 4> kFactors = {-127, 127, -1, 2};
    for (int b = 0; b < 4; ++b) dot += static_cast<int8_t>(from[i] >> 8 * b & 255u) * kFactors[static_cast<size_t>(b)];
    for (int k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) sum += word(k);
    for (int k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) max_word = std::max(max_word, word(k));
    for (int k = i / 8 * 8; k < i / 8 * 8 + 8; ++k) sum8 += word(k);
    const int halves = 65536 - 5 * 524288;
    const std::array<int, 4> expected = {dot, sum * 4096 + sum8, max_word + halves, 1};
    for (size_t k = 0; k < expected.size(); ++k) {
      const int got = out[static_cast<size_t>(i) * 4 + k];
      if (got == expected[k]) continue;
      return fail(ErrorCode::unsupported,
                  "{} ({}) fails the self-test: result {} of thread {} is {}, expected {}; try another driver version",
                  capabilities_.name, capabilities_.driver, k, i, got, expected[k]);
    }
  }
  return ok_status();
}

// Vulkan does not define the start order of workgroups of dispatches without a barrier between them. Where a vendor's
// devices start them in order, this verifies it: eight dependent dispatches, each with more workgroups than the device
// can run at once, with alternating occupancy.
Status Device::test_dispatch_order() {
  if (!tuning().starts_in_order) return ok_status();
  constexpr uint32_t kDispatches = 8, kPerMultiprocessor = 16;
  const uint32_t n_workgroups = kPerMultiprocessor * static_cast<uint32_t>(multiprocessors_of(capabilities_));
  ZINC_TRY(memory, allocate((kDispatches + 2) * kMaxParamsBytes, "the self-test", Memory::upload));
  ZINC_TRY(counters, allocate((kDispatches + 1) * sizeof(uint32_t), "the self-test"));
  const auto counter = [&](uint32_t i) { return counters.address() + i * sizeof(uint32_t); };
  for (uint32_t i = 0; i < kDispatches; ++i) {
    const shader::DispatchOrderParams params{.producer_counter = counter(i > 0 ? i - 1 : 0),
                                             .own_counter = counter(i),
                                             .failed = counter(kDispatches),
                                             .n_producers = i > 0 ? static_cast<int>(n_workgroups) : 0,
                                             .unused = 0};
    std::memcpy(memory.host_ptr<std::byte>() + i * kMaxParamsBytes, &params, sizeof(params));
  }
  ZINC_TRY(set, make_descriptor_set(memory, memory));
  ZINC_TRY(high_occupancy, pipeline({"dispatch_order", {{kSpecDispatchOrderSharedWords, 256}}}));
  ZINC_TRY(low_occupancy, pipeline({"dispatch_order",
                                    {{kSpecDispatchOrderSharedWords,
                                      static_cast<int>(capabilities_.shared_bytes / 2 / sizeof(uint32_t))}}}));
  ZINC_TRY(
      timeline_value, run([&](VkCommandBuffer c) {
        for (uint32_t i = 0; i < kDispatches; ++i) {
          const uint32_t params_offset = i * static_cast<uint32_t>(kMaxParamsBytes);
          const std::array<uint32_t, 2> offsets = {params_offset, kDispatches * static_cast<uint32_t>(kMaxParamsBytes)};
          api_.CmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, i % 2 == 0 ? low_occupancy : high_occupancy);
          api_.CmdBindDescriptorSets(c, VK_PIPELINE_BIND_POINT_COMPUTE, layout_, 0, 1, &set.set, 2, offsets.data());
          api_.CmdDispatch(c, n_workgroups, 1, 1);
        }
      }));
  const Status waited = wait(timeline_value);
  free_descriptor_set(set);
  if (!waited.ok()) return waited;
  std::array<uint32_t, kDispatches + 1> counts{};
  if (Status s = read(counters, 0, std::as_writable_bytes(std::span(counts))); !s.ok()) return s;
  starts_in_order_ = counts[kDispatches] == 0;
  return ok_status();
}

Result<std::vector<KernelStatistic>> Device::statistics(const KernelKey& key) {
  ZINC_TRY(pipeline, compile(key, VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR));
  VkPipelineExecutableInfoKHR executable{};
  executable.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR;
  executable.pipeline = pipeline;
  uint32_t n = 0;
  api_.GetPipelineExecutableStatisticsKHR(device_, &executable, &n, nullptr);
  VkPipelineExecutableStatisticKHR empty{};
  empty.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
  std::vector<VkPipelineExecutableStatisticKHR> rows(n, empty);
  api_.GetPipelineExecutableStatisticsKHR(device_, &executable, &n, rows.data());
  std::vector<KernelStatistic> out;
  for (const auto& row : rows) out.push_back({row.name, row.value.u64});
  api_.DestroyPipeline(device_, pipeline, nullptr);
  return out;
}

}  // namespace zinc::vulkan
