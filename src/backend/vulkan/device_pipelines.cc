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

void Device::free_descriptor_set(const DescriptorSet& set) { device_.destroy(set.pool); }

Result<DescriptorSet> Device::make_descriptor_set(const Buffer& params, const Buffer& steps) {
  constexpr std::string_view kWhat = "creating a descriptor set";
  const vk::DescriptorPoolSize size{vk::DescriptorType::eUniformBufferDynamic, 2};
  DescriptorSet made;
  ZINC_TRY(pool, check(device_.createDescriptorPool({.maxSets = 1, .poolSizeCount = 1, .pPoolSizes = &size}), kWhat));
  made.pool = pool;
  const Result<std::vector<vk::DescriptorSet>> sets = check(
      device_.allocateDescriptorSets({.descriptorPool = pool, .descriptorSetCount = 1, .pSetLayouts = &set_layout_}),
      kWhat);
  if (!sets.ok()) {
    free_descriptor_set(made);
    return sets.error();
  }
  made.set = sets.value()[0];
  count(&Counters::n_descriptor_sets);
  const std::array<vk::DescriptorBufferInfo, 2> buffers = {
      {{handle_of(params), 0, kMaxParamsBytes}, {handle_of(steps), 0, kMaxParamsBytes}}};
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    device_.updateDescriptorSets(vk::WriteDescriptorSet{.dstSet = made.set,
                                                        .dstBinding = i,
                                                        .descriptorCount = 1,
                                                        .descriptorType = vk::DescriptorType::eUniformBufferDynamic,
                                                        .pBufferInfo = &buffers[i]},
                                 nullptr);
  }
  return made;
}

void Device::bind_params(vk::CommandBuffer commands, vk::DescriptorSet set, size_t params_offset,
                         size_t step_offset) const {
  const std::array<uint32_t, 2> offsets = {static_cast<uint32_t>(params_offset), static_cast<uint32_t>(step_offset)};
  commands.bindDescriptorSets(vk::PipelineBindPoint::eCompute, layout_, 0, set, offsets);
}

Result<vk::Pipeline> Device::pipeline(const KernelKey& key) {
  const std::lock_guard lock(pipelines_mutex_);
  if (const auto found = pipelines_.find(key); found != pipelines_.end()) return found->second;
  ZINC_TRY(compiled, compile(key, {}));
  pipelines_.emplace(key, compiled);
  return compiled;
}

Result<vk::Pipeline> Device::compile(const KernelKey& key, vk::PipelineCreateFlags flags) {
  const std::span<const uint32_t> words = find_kernel(key.module);
  ZINC_CHECK(!words.empty());
  const std::string what = "compiling kernel " + key.module;
  ZINC_TRY(module, check(device_.createShaderModule({.codeSize = words.size_bytes(), .pCode = words.data()}), what));
  std::vector<int32_t> values = {subgroup_size(capabilities_)};
  std::vector<vk::SpecializationMapEntry> entries = {{kSpecSubgroupSize, 0, sizeof(int32_t)}};
  for (const auto& [id, value] : key.constants) {
    entries.push_back({id, static_cast<uint32_t>(values.size() * sizeof(int32_t)), sizeof(int32_t)});
    values.push_back(value);
  }
  const vk::SpecializationInfo constants{static_cast<uint32_t>(entries.size()), entries.data(),
                                         values.size() * sizeof(int32_t), values.data()};
  const vk::PipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{.requiredSubgroupSize =
                                                                           static_cast<uint32_t>(values[0])};
  vk::PipelineCreationFeedback feedback, stage_feedback;
  const vk::PipelineCreationFeedbackCreateInfo feedback_info{.pPipelineCreationFeedback = &feedback,
                                                             .pipelineStageCreationFeedbackCount = 1,
                                                             .pPipelineStageCreationFeedbacks = &stage_feedback};
  vk::PipelineShaderStageCreateInfo stage{
      .stage = vk::ShaderStageFlagBits::eCompute, .module = module, .pName = "main", .pSpecializationInfo = &constants};
  if (capabilities_.has_subgroup_control) stage.pNext = &subgroup;
  if (capabilities_.has_full_subgroups) {
    stage.flags = vk::PipelineShaderStageCreateFlagBits::eRequireFullSubgroups;
  }
  const auto created = device_.createComputePipeline(
      pipeline_cache_, {.pNext = &feedback_info, .flags = flags, .stage = stage, .layout = layout_});
  device_.destroy(module);
  ZINC_TRY(compiled, check(created, what));
  count(&Counters::n_pipelines);
  if (!(feedback.flags & vk::PipelineCreationFeedbackFlagBits::eApplicationPipelineCacheHit)) {
    count(&Counters::n_compiled);
  }
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
  auto created = device_.createPipelineCache({.initialDataSize = bytes.size(), .pInitialData = bytes.data()});
  if (created.result != vk::Result::eSuccess) created = device_.createPipelineCache({});  // a damaged file: recompile
  ZINC_TRY(cache, check(created, "creating a pipeline cache"));
  pipeline_cache_ = cache;
  return ok_status();
}

void Device::save_pipeline_cache() const {
  const std::lock_guard lock(pipelines_mutex_);
  const size_t n_compiled = counters().n_compiled;
  if (get_cache_folder().empty() || n_compiled == n_saved_) return;
  n_saved_ = n_compiled;
  const auto [code, bytes] = device_.getPipelineCacheData(pipeline_cache_);
  if (code != vk::Result::eSuccess) return;
  std::error_code ignored;  // if writing fails, the next start recompiles
  std::filesystem::create_directories(get_cache_folder(), ignored);
  [[maybe_unused]] const Status saved = write_file_atomically(
      pipeline_cache_path(), std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
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
  ZINC_TRY(timeline_value, run([&](vk::CommandBuffer c) {
             c.bindPipeline(vk::PipelineBindPoint::eCompute, kernel);
             bind_params(c, set.set, 0, kMaxParamsBytes);
             c.dispatch(1, 1, 1);
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
  ZINC_TRY(timeline_value, run([&](vk::CommandBuffer c) {
             for (uint32_t i = 0; i < kDispatches; ++i) {
               c.bindPipeline(vk::PipelineBindPoint::eCompute, i % 2 == 0 ? low_occupancy : high_occupancy);
               bind_params(c, set.set, i * kMaxParamsBytes, kDispatches * kMaxParamsBytes);
               c.dispatch(n_workgroups, 1, 1);
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
  ZINC_TRY(pipeline, compile(key, vk::PipelineCreateFlagBits::eCaptureStatisticsKHR));
  const auto rows = device_.getPipelineExecutableStatisticsKHR({.pipeline = pipeline}).value;
  std::vector<KernelStatistic> out;
  for (const vk::PipelineExecutableStatisticKHR& row : rows) out.push_back({row.name.data(), row.value.u64});
  device_.destroy(pipeline);
  return out;
}

}  // namespace zinc::vulkan
