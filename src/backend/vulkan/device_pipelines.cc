// The device's kernels: how they are compiled and kept, and the answers they must give before any other work.
#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "backend/vulkan/device.h"
#include "backend/vulkan/kernels.h"
#include "base/atomic_file.h"
#include "base/cache_folder.h"

namespace zinc::vulkan {

void Device::free_set(const BlockSet& set) {
  if (set.pool) api_.DestroyDescriptorPool(device_, set.pool, nullptr);
}

Result<BlockSet> Device::describe(const Buffer& params, const Buffer& steps) {
  VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC, 2};
  VkDescriptorPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
  info.maxSets = 1;
  info.poolSizeCount = 1;
  info.pPoolSizes = &size;
  VkDescriptorPool pool = VK_NULL_HANDLE;
  if (Status s = check(api_.CreateDescriptorPool(device_, &info, nullptr, &pool), "describing memory"); !s.ok()) {
    return s.error();
  }
  VkDescriptorSetAllocateInfo take{};
  take.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  take.descriptorPool = pool;
  take.descriptorSetCount = 1;
  take.pSetLayouts = &set_layout_;
  VkDescriptorSet set = VK_NULL_HANDLE;
  if (Status s = check(api_.AllocateDescriptorSets(device_, &take, &set), "describing memory"); !s.ok()) {
    api_.DestroyDescriptorPool(device_, pool, nullptr);
    return s.error();
  }
  count(&Counters::n_descriptor_sets);
  const std::array<VkDescriptorBufferInfo, 2> blocks = {
      {{params.handle(), 0, kBlockBytes}, {steps.handle(), 0, kBlockBytes}}};
  std::array<VkWriteDescriptorSet, 2> writes{};
  for (uint32_t i = 0; i < writes.size(); ++i) {
    writes[i].sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    writes[i].dstSet = set;
    writes[i].dstBinding = i;
    writes[i].descriptorCount = 1;
    writes[i].descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC;
    writes[i].pBufferInfo = &blocks[i];
  }
  api_.UpdateDescriptorSets(device_, static_cast<uint32_t>(writes.size()), writes.data(), 0, nullptr);
  return BlockSet{pool, set};
}

Result<VkPipeline> Device::pipeline(const KernelKey& key) {
  const std::lock_guard lock(pipelines_mutex_);
  if (const auto found = pipelines_.find(key); found != pipelines_.end()) return found->second;
  ZINC_TRY(made, compile(key, 0));
  pipelines_.emplace(key, made);
  return made;
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
  std::vector<int32_t> values = {subgroup_for(capabilities_)};
  std::vector<VkSpecializationMapEntry> entries = {{0, 0, sizeof(int32_t)}};
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
  VkPipelineCreationFeedbackCreateInfo wants_feedback{};
  wants_feedback.sType = VK_STRUCTURE_TYPE_PIPELINE_CREATION_FEEDBACK_CREATE_INFO;
  wants_feedback.pPipelineCreationFeedback = &feedback;
  wants_feedback.pipelineStageCreationFeedbackCount = 1;
  wants_feedback.pPipelineStageCreationFeedbacks = &stage_feedback;
  VkComputePipelineCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  info.pNext = &wants_feedback;
  info.flags = flags;
  info.layout = layout_;
  info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &constants;
  if (capabilities_.has_subgroup_control) info.stage.pNext = &subgroup;
  if (capabilities_.has_full_subgroups) info.stage.flags = VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
  VkPipeline made = VK_NULL_HANDLE;
  const VkResult code = api_.CreateComputePipelines(device_, pipeline_cache_, 1, &info, nullptr, &made);
  api_.DestroyShaderModule(device_, module, nullptr);
  if (Status s = check(code, what); !s.ok()) return s.error();
  count(&Counters::n_pipelines);
  const bool was_kept = (feedback.flags & VK_PIPELINE_CREATION_FEEDBACK_APPLICATION_PIPELINE_CACHE_HIT_BIT) != 0;
  if (!was_kept) count(&Counters::n_compiled);
  return made;
}

// Named by everything a driver's machine code depends on.
std::filesystem::path Device::pipelines_path() const {
  std::string name = fmt::format("vulkan-{:04x}-{:04x}-{:08x}-{:016x}-", capabilities_.vendor_id,
                                 capabilities_.device_id, capabilities_.driver_version, kernels_hash());
  for (const uint8_t byte : capabilities_.cache_id) name += fmt::format("{:02x}", byte);
  return kept_caches_folder() / (name + ".pipelines");
}

Status Device::load_pipelines() {
  std::string bytes;
  if (!kept_caches_folder().empty()) {
    std::ifstream file(pipelines_path(), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  VkPipelineCacheCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  info.initialDataSize = bytes.size();
  info.pInitialData = bytes.data();
  if (api_.CreatePipelineCache(device_, &info, nullptr, &pipeline_cache_) == VK_SUCCESS) return ok_status();
  info.initialDataSize = 0;  // a damaged file costs compiling
  return check(api_.CreatePipelineCache(device_, &info, nullptr, &pipeline_cache_), "making a pipeline cache");
}

void Device::keep_pipelines() const {
  const std::lock_guard lock(pipelines_mutex_);
  const size_t n_compiled = counters().n_compiled;
  if (kept_caches_folder().empty() || n_compiled == n_kept_) return;
  n_kept_ = n_compiled;
  size_t n_bytes = 0;
  if (api_.GetPipelineCacheData(device_, pipeline_cache_, &n_bytes, nullptr) != VK_SUCCESS) return;
  std::string bytes(n_bytes, '\0');
  if (api_.GetPipelineCacheData(device_, pipeline_cache_, &n_bytes, bytes.data()) != VK_SUCCESS) return;
  bytes.resize(n_bytes);
  std::error_code ignored;  // a cache that cannot be kept costs compiling next time
  std::filesystem::create_directories(kept_caches_folder(), ignored);
  [[maybe_unused]] const Status kept = write_file_atomically(pipelines_path(), bytes);
}

// ---- known answers ----

Status Device::self_test() {
  constexpr int kThreads = 256;
  struct CheckParams {
    Address from, out;
  };
  ZINC_TRY(memory, allocate(2 * kBlockBytes + kThreads * 5 * sizeof(int), "the self-test", Memory::upload));
  uint32_t* from = memory.as<uint32_t>() + 2 * kBlockBytes / sizeof(uint32_t);
  const int* out = reinterpret_cast<const int*>(from + kThreads);
  for (uint32_t i = 0; i < kThreads; ++i) from[i] = i * 2654435761u;
  const Address at = memory.address() + 2 * kBlockBytes;
  *memory.as<CheckParams>() = {at, at + kThreads * sizeof(int)};
  ZINC_TRY(set, describe(memory, memory));
  ZINC_TRY(kernel, pipeline({"check", {}}));
  ZINC_TRY(ticket, run([&](VkCommandBuffer c) {
             const std::array<uint32_t, 2> offsets = {0, static_cast<uint32_t>(kBlockBytes)};
             api_.CmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, kernel);
             api_.CmdBindDescriptorSets(c, VK_PIPELINE_BIND_POINT_COMPUTE, layout_, 0, 1, &set.set, 2, offsets.data());
             api_.CmdDispatch(c, 1, 1, 1);
           }));
  const Status waited = wait(ticket);
  free_set(set);
  if (!waited.ok()) return waited;
  for (int i = 0; i < kThreads; ++i) {
    const auto word = [&](int k) { return static_cast<int>(from[k] & 1023u); };
    int dot = 0, sum = 0, small = 0, largest = 0;
    constexpr std::array<int, 4> kFactors = {-127, 127, -1, 2};
    for (int b = 0; b < 4; ++b) dot += static_cast<int8_t>(from[i] >> 8 * b & 255u) * kFactors[static_cast<size_t>(b)];
    for (int k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) sum += word(k);
    for (int k = i / 32 * 32; k < i / 32 * 32 + 32; ++k) largest = std::max(largest, word(k));
    for (int k = i / 8 * 8; k < i / 8 * 8 + 8; ++k) small += word(k);
    const int halves = 65536 - 5 * 524288;
    const std::array<int, 4> expected = {dot, sum * 4096 + small, largest + halves, 1};
    for (size_t k = 0; k < expected.size(); ++k) {
      const int got = out[static_cast<size_t>(i) * 4 + k];
      if (got == expected[k]) continue;
      return fail(
          ErrorCode::unsupported,
          "{} ({}) computes wrongly: answer {} of thread {} of the self-test is {}, expected {}; another driver "
          "version may help",
          capabilities_.name, capabilities_.driver, k, i, got, expected[k]);
    }
  }
  return ok_status();
}

// Vulkan promises no order among the workgroups of dispatches without a barrier between them. Where a maker's devices
// have one, some links of a chain show it: each of more workgroups than the device can begin at once, few and many of
// which fit on a processor in turn.
Status Device::test_order() {
  if (!tuning().starts_in_order) return ok_status();
  struct OrderParams {
    Address before, own, failed;
    int n_before, unused;
  };
  constexpr uint32_t kLinks = 8, kPerProcessor = 16;
  const uint32_t n_workgroups = kPerProcessor * static_cast<uint32_t>(processors_of(capabilities_));
  ZINC_TRY(memory, allocate((kLinks + 2) * kBlockBytes, "the self-test", Memory::upload));
  ZINC_TRY(counters, allocate((kLinks + 1) * sizeof(uint32_t), "the self-test"));
  const auto counter = [&](uint32_t link) { return counters.address() + link * sizeof(uint32_t); };
  for (uint32_t link = 0; link < kLinks; ++link) {
    const OrderParams params{counter(link > 0 ? link - 1 : 0), counter(link), counter(kLinks),
                             link > 0 ? static_cast<int>(n_workgroups) : 0, 0};
    std::memcpy(memory.as<std::byte>() + link * kBlockBytes, &params, sizeof(params));
  }
  ZINC_TRY(set, describe(memory, memory));
  ZINC_TRY(small, pipeline({"order", {{1, 256}}}));
  ZINC_TRY(large, pipeline({"order", {{1, static_cast<int>(capabilities_.shared_bytes / 2 / sizeof(uint32_t))}}}));
  ZINC_TRY(ticket, run([&](VkCommandBuffer c) {
             for (uint32_t link = 0; link < kLinks; ++link) {
               const uint32_t block = link * static_cast<uint32_t>(kBlockBytes);
               const std::array<uint32_t, 2> offsets = {block, kLinks * static_cast<uint32_t>(kBlockBytes)};
               api_.CmdBindPipeline(c, VK_PIPELINE_BIND_POINT_COMPUTE, link % 2 == 0 ? large : small);
               api_.CmdBindDescriptorSets(c, VK_PIPELINE_BIND_POINT_COMPUTE, layout_, 0, 1, &set.set, 2,
                                          offsets.data());
               api_.CmdDispatch(c, n_workgroups, 1, 1);
             }
           }));
  const Status waited = wait(ticket);
  free_set(set);
  if (!waited.ok()) return waited;
  std::array<uint32_t, kLinks + 1> counts{};
  if (Status s = read(counters, 0, std::as_writable_bytes(std::span(counts))); !s.ok()) return s;
  starts_in_order_ = counts[kLinks] == 0;
  return ok_status();
}

Result<std::vector<KernelStatistic>> Device::statistics(const KernelKey& key) {
  ZINC_TRY(pipeline, compile(key, VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR));
  VkPipelineExecutableInfoKHR which{};
  which.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR;
  which.pipeline = pipeline;
  uint32_t n = 0;
  api_.GetPipelineExecutableStatisticsKHR(device_, &which, &n, nullptr);
  VkPipelineExecutableStatisticKHR empty{};
  empty.sType = VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR;
  std::vector<VkPipelineExecutableStatisticKHR> rows(n, empty);
  api_.GetPipelineExecutableStatisticsKHR(device_, &which, &n, rows.data());
  std::vector<KernelStatistic> out;
  for (const auto& row : rows) out.push_back({row.name, row.value.u64});
  api_.DestroyPipeline(device_, pipeline, nullptr);
  return out;
}

}  // namespace zinc::vulkan
