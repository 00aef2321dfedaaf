// Tests specific to this backend; the conformance suite covers the correctness of its kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include <algorithm>
#include <set>
#include <thread>

#include "backend/gpu/panel_format.h"
#include "backend/vulkan/device.h"
#include "backend/vulkan/kernels.h"
#include "backend/vulkan/lowering.h"
#include "base/cache_folder.h"
#include "tests/support/conformance.h"
#include "tests/support/test_files.h"
#include "tests/support/tested_backends.h"

namespace zinc::vulkan {
namespace {

TEST(VulkanKernels, exist_for_every_panel_format) {
  for (const PanelFormat* const* f = gpu::kPanelFormats; *f; ++f) {
    EXPECT_TRUE(has_format((*f)->name)) << (*f)->name;
    EXPECT_FALSE(find_kernel("embed." + std::string((*f)->name)).empty()) << (*f)->name;
  }
  EXPECT_TRUE(find_kernel("linear.q9_9").empty());
}

TEST(VulkanDevice, error_for_unknown_name_lists_available_devices) {
  const Result<Device*> device = Device::shared("no such device");
  ASSERT_FALSE(device.ok());
  if (cpu_vulkan()->is_available()) {
    EXPECT_NE(device.error().message.find("llvmpipe"), std::string::npos) << device.error().message;
  }
}

TEST(VulkanDevice, cpu_device_is_used_only_if_named) {
  const Result<Device*> device = Device::shared("");
  if (device.ok()) {
    EXPECT_NE(device.value()->capabilities().type, vk::PhysicalDeviceType::eCpu);
  } else {
    EXPECT_FALSE(find_backend("vulkan").value()->is_available());
  }
}

TEST(VulkanDevice, backend_with_one_device_rejects_a_device_name) {
  const Result<std::unique_ptr<Backend>> backend = open_backend("reference:llvmpipe", 1);
  ASSERT_FALSE(backend.ok());
  EXPECT_NE(backend.error().message.find("has only one"), std::string::npos) << backend.error().message;
}

TEST(VulkanDevice, written_bytes_read_back_unchanged) {
  if (!cpu_vulkan()->is_available()) GTEST_SKIP() << "llvmpipe is not installed";
  Device& device = *Device::shared("llvmpipe").value();
  std::vector<std::byte> bytes(20 << 20);  // more than the staging buffer
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 >> 3);
  const Buffer buffer = std::move(device.allocate(bytes.size() + 64, "a test").value());
  ASSERT_TRUE(device.write(buffer, 64, bytes).ok());
  std::vector<std::byte> back(bytes.size());
  ASSERT_TRUE(device.read(buffer, 64, back).ok());
  EXPECT_TRUE(back == bytes);
  const size_t n_allocations = device.counters().n_allocations;
  ASSERT_TRUE(device.read(buffer, 64, back).ok());
  EXPECT_EQ(device.counters().n_allocations, n_allocations) << "readback must reuse its staging buffer";
  const Result<Buffer> huge = device.allocate(size_t{1} << 50, "a test");
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::out_of_memory);
}

// llvmpipe runs one dispatch after the other; the emulated GPUs are those of tests/emulated_vulkan.
TEST(VulkanDevice, workgroups_wait_on_counters_only_if_start_order_was_verified) {
  struct Expected {
    const char* name;
    bool starts_in_order;
  };
  if (!cpu_vulkan()->is_available() && !emulated_vulkan()->is_available())
    GTEST_SKIP() << "neither llvmpipe nor an emulated device is available";
  for (const Expected& expected :
       {Expected{"llvmpipe", true}, {"emulated nvidia", true}, {"emulated unordered", false}}) {
    const Result<Device*> device = Device::shared(expected.name);
    if (!device.ok()) continue;
    EXPECT_TRUE(device.value()->tuning().starts_in_order) << expected.name;
    EXPECT_EQ(device.value()->starts_in_order(), expected.starts_in_order) << expected.name;
    const std::string features = open_backend(fmt::format("vulkan:{}", expected.name), 1).value()->info().features;
    EXPECT_EQ(features.find("do not start in the order") == std::string::npos, expected.starts_in_order) << features;
  }
}

TEST(VulkanDevice, multiprocessor_count_comes_from_the_driver) {
  Capabilities device;
  device.vendor_id = 0x10DE;
  EXPECT_EQ(multiprocessors_of(device), 132) << "default: the GPU this vendor's row was tuned on";
  device.n_multiprocessors = 28;
  EXPECT_EQ(multiprocessors_of(device), 28);
}

// Drivers limit an allocation, many to 4 GiB: less than the recurrent states of all layers of 64 sequences. The
// emulated GPUs have a limit of their own.
TEST(VulkanDevice, recurrent_states_may_exceed_the_largest_allocation) {
  if (!emulated_vulkan()->is_available()) GTEST_SKIP() << "no emulated device is available";
  const size_t max_bytes = Device::shared("emulated").value()->capabilities().max_allocation_bytes;
  std::vector<LayerCache> layers(4);
  for (LayerCache& layer : layers) layer.recurrent = {.heads = 4, .k_dim = 128, .v_dim = 128};
  const size_t slot_bytes = static_cast<size_t>(layers[0].recurrent.delta_floats()) * sizeof(float);
  const std::unique_ptr<Backend> backend = std::move(emulated_vulkan()->open(1).value());
  const auto allocate = [&](size_t n_slots) {
    return backend->allocate_cache(
        layers, {.n_pages = {}, .n_slots = static_cast<int>(n_slots), .kv_format = find_format("f16")});
  };
  const auto cache = allocate(max_bytes / slot_bytes / 2);  // half of the limit per layer
  ASSERT_TRUE(cache.ok()) << cache.error().message;
  EXPECT_GT(cache.value()->device_bytes(), max_bytes);
  const auto too_large = allocate(max_bytes / slot_bytes + 1);
  ASSERT_FALSE(too_large.ok());
  EXPECT_NE(too_large.error().message.find("maximum allocation"), std::string::npos) << too_large.error().message;
}

TEST(VulkanDevice, measured_read_bandwidth_is_plausible) {
  if (!cpu_vulkan()->is_available()) GTEST_SKIP() << "llvmpipe is not installed";
  const double rate = cpu_vulkan()->open(1).value()->measure_peaks().read_bytes_per_s;
  EXPECT_GT(rate, 1e6);
  EXPECT_LT(rate, 1e14);
}

// Writes, copies and reads buffers, as concurrently loaded models do. Returns the timeline values of the copies.
std::vector<TimelineValue> copy_through_buffers(Device& device, int first_value, int n_rounds, int* n_wrong) {
  std::vector<TimelineValue> timeline_values;
  for (int round = 0; round < n_rounds; ++round) {
    const std::vector<int> values(1000, first_value + round);
    const size_t n_bytes = values.size() * sizeof(int);
    const Buffer first = std::move(device.allocate(n_bytes, "a test").value());
    const Buffer second = std::move(device.allocate(n_bytes, "a test").value());
    std::vector<int> back(values.size());
    const Status written = device.write(first, 0, std::as_bytes(std::span(values)));
    const Result<TimelineValue> copied = device.copy(first, 0, second, 0, n_bytes);
    const Status read = device.read(second, 0, std::as_writable_bytes(std::span(back)));
    if (!written.ok() || !copied.ok() || !read.ok() || back != values) ++*n_wrong;
    if (copied.ok()) timeline_values.push_back(copied.value());
  }
  return timeline_values;
}

TEST(VulkanDevice, concurrent_threads_read_back_their_own_data) {
  if (!cpu_vulkan()->is_available()) GTEST_SKIP() << "llvmpipe is not installed";
  Device& device = *Device::shared("llvmpipe").value();
  constexpr int kThreads = 4, kRounds = 200;
  std::array<std::vector<TimelineValue>, kThreads> timeline_values;
  std::array<int, kThreads> n_wrong{};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      timeline_values[i] = copy_through_buffers(device, static_cast<int>(i) * kRounds, kRounds, &n_wrong[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<TimelineValue> all;
  for (size_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(n_wrong[i], 0) << "thread " << i;
    all.insert(timeline_values[i].begin(), timeline_values[i].end());
  }
  EXPECT_EQ(all.size(), size_t{kThreads * kRounds}) << "timeline values must be unique";
}

// One token of a graph without caches.
Result<StepOutput> run_token(Plan& plan, const conformance::CaseStep& step) {
  const std::vector<int32_t> positions = {0}, seq_begin = {0, 1}, slots = {0}, rows = {0};
  const std::span<const float> hidden = std::span(step.hidden).first(step.hidden.size() / step.tokens.size());
  plan.start({.tokens = std::span(step.tokens).first(1),
              .positions = positions,
              .seq_begin = seq_begin,
              .slots = slots,
              .page_tables = {},
              .output_rows = rows,
              .logit_rows = rows,
              .hidden = hidden});
  return plan.wait();
}

// Prints the host time per step for docs/performance.md.
void expect_decode_only_submits(const BackendInfo& info, Device& device) {
  const conformance::CaseSource source = conformance::linear_cases().front();
  const conformance::Case c = source.make(source.name);
  const std::unique_ptr<Backend> backend = std::move(info.open(1).value());
  const Graph* const graph = &c.graph;
  const auto weights = std::move(backend->upload({&graph, 1}, [](auto) {}).value());
  const auto cache = std::move(backend->allocate_cache({}, {.n_pages = {}, .kv_format = find_format("f16")}).value());
  const auto plan = std::move(backend->compile(c.graph, *weights, *cache, {.max_tokens = 8, .max_outputs = 8}).value());
  ASSERT_TRUE(plan->wait_until_prepared().ok());
  ASSERT_TRUE(run_token(*plan, c.steps[0]).ok());  // a CPU device prepares its class on demand
  const Counters before = device.counters();
  constexpr size_t kTokens = 50;
  for (size_t i = 0; i < kTokens; ++i) ASSERT_TRUE(run_token(*plan, c.steps[0]).ok());
  const Counters after = device.counters();
  EXPECT_EQ(after.n_recordings, before.n_recordings);
  EXPECT_EQ(after.n_descriptor_sets, before.n_descriptor_sets);
  EXPECT_EQ(after.n_pipelines, before.n_pipelines);
  EXPECT_EQ(after.n_allocations, before.n_allocations);
  EXPECT_EQ(after.n_submissions, before.n_submissions + kTokens);
}

// Uploads, compiles and runs a graph repeatedly. Returns the number of tokens that differ from the first result.
int count_wrong_tokens(const BackendInfo& info, const conformance::Case& c, int n_plans, int n_tokens) {
  const std::unique_ptr<Backend> backend = std::move(info.open(1).value());
  const Graph* const graph = &c.graph;
  std::vector<float> expected;
  int n_wrong = 0;
  for (int i = 0; i < n_plans; ++i) {
    const auto weights = std::move(backend->upload({&graph, 1}, [](auto) {}).value());
    const auto cache = std::move(backend->allocate_cache({}, {.n_pages = {}, .kv_format = find_format("f16")}).value());
    const auto plan =
        std::move(backend->compile(c.graph, *weights, *cache, {.max_tokens = 8, .max_outputs = 8}).value());
    for (int t = 0; t < n_tokens; ++t) {
      const Result<StepOutput> output = run_token(*plan, c.steps[0]);
      if (output.ok() && expected.empty()) expected.assign(output.value().logits.begin(), output.value().logits.end());
      n_wrong += !output.ok() || !std::ranges::equal(output.value().logits, expected);
    }
  }
  return n_wrong;
}

TEST(VulkanPlan, concurrent_models_on_one_device_give_stable_results) {
  if (!cpu_vulkan()->is_available()) GTEST_SKIP() << "llvmpipe is not installed";
  const std::vector<conformance::CaseSource> sources = conformance::linear_cases();
  std::array<int, 2> n_wrong{};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < n_wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      const conformance::Case c = sources[i].make(sources[i].name);
      n_wrong[i] = count_wrong_tokens(*cpu_vulkan(), c, 3, 20);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong[0], 0);
  EXPECT_EQ(n_wrong[1], 0);
}

TEST(VulkanPlan, decode_step_records_and_allocates_nothing) {
  if (!cpu_vulkan()->is_available()) GTEST_SKIP() << "llvmpipe is not installed";
  expect_decode_only_submits(*cpu_vulkan(), *Device::shared("llvmpipe").value());
}

TEST(VulkanPlan, decode_step_on_a_gpu_records_and_allocates_nothing) {
  const BackendInfo& vulkan = *find_backend("vulkan").value();
  if (!vulkan.is_available()) GTEST_SKIP() << "no GPU is available";
  expect_decode_only_submits(vulkan, *Device::shared("").value());
}

TEST(VulkanMatmul, byte_planes_are_used_only_if_they_fit_shared_memory) {
  Capabilities device;
  const auto uses_planes = [&](std::string_view format, int warp_rows) {
    return has_planes(device, *gpu::find_panel_format(format), warp_rows);
  };
  device.shared_bytes = 48 << 10;
  EXPECT_TRUE(uses_planes("q4_k", 4));
  EXPECT_TRUE(uses_planes("q4_k", 2)) << "minima overlay the planes of a 64-row tile";
  EXPECT_TRUE(uses_planes("q5_k", 2));
  EXPECT_TRUE(uses_planes("iq4_xs", 2));
  EXPECT_TRUE(uses_planes("q6_k", 2));
  EXPECT_FALSE(uses_planes("q8_0", 4)) << "this format has no planes";
  device.shared_bytes = 40 << 10;
  EXPECT_FALSE(uses_planes("q4_k", 2));
}

TEST(VulkanAttention, all_step_sizes_use_the_same_kernel_for_any_shared_memory_size) {
  Capabilities device;
  device.has_coopmat_f16 = true;
  for (const int kilobytes : {16, 32, 48, 64, 100, 227}) {
    device.shared_bytes = static_cast<size_t>(kilobytes) << 10;
    for (const int dim : {32, 64, 80, 96, 128, 192, 256, 512}) {
      AttentionSize size{.k_dim = dim, .v_dim = std::min(dim, 256), .n_head_segments = (dim + 255) / 256};
      const Result<AttentionShape> prefill = attention_shape(device, size);
      size.is_split = true;
      const Result<AttentionShape> small_batch = attention_shape(device, size);
      size.is_fused = true;
      const Result<AttentionShape> decode = attention_shape(device, size);
      if (!decode.ok()) continue;  // the largest heads are not supported at all
      EXPECT_EQ(prefill.value().key.module, decode.value().key.module) << kilobytes << " KB, heads of " << dim;
      EXPECT_EQ(small_batch.value().key.module, decode.value().key.module) << kilobytes << " KB, heads of " << dim;
    }
  }
  device.shared_bytes = 48 << 10;
  EXPECT_EQ(attention_shape(device, {.k_dim = 256, .v_dim = 256}).value().key.module, "attention_coopmat.f16");
}

// The hot kernels of decode and prefill, with the constants that plans use.
std::vector<std::pair<std::string, KernelKey>> hot_kernels(const Capabilities& device) {
  const Tuning& tuning = tuning_of(device);
  std::vector<std::pair<std::string, KernelKey>> keys;
  for (const char* format : {"q4_k", "q6_k", "q8_0", "q4_0", "mxfp4"}) {
    const std::string module = fmt::format("linear.{}", format);
    keys.push_back({"decode",
                    {module,
                     {{kSpecLinearRows, 1},
                      {kSpecLinearSplitK, 1},
                      {kSpecMatmulGatedAct, 0},
                      {kSpecMatmulStagesRow, 1},
                      {kSpecMatmulRowQuads, 256},
                      {kSpecMatmulExpertMode, kDense},
                      {kSpecMatmulInputKind, kNormInput},
                      {kSpecUnalignedRows, 0}}}});
    keys.push_back({"decode, gate and up",
                    {module,
                     {{kSpecLinearRows, 1},
                      {kSpecLinearSplitK, 1},
                      {kSpecMatmulGatedAct, 1},
                      {kSpecMatmulStagesRow, 1},
                      {kSpecMatmulRowQuads, 256},
                      {kSpecMatmulExpertMode, kDense},
                      {kSpecMatmulInputKind, kNormInput},
                      {kSpecUnalignedRows, 0}}}});
    keys.push_back({"prefill",
                    {module,
                     {{kSpecLinearRows, tuning.prefill_rows},
                      {kSpecLinearSplitK, 0},
                      {kSpecMatmulGatedAct, 0},
                      {kSpecMatmulStagesRow, 0},
                      {kSpecMatmulRowQuads, 1},
                      {kSpecMatmulExpertMode, kDense}}}});
  }
  keys.push_back({"decode, fused routing",
                  {"linear.q4_k",
                   {{kSpecLinearRows, 1},
                    {kSpecLinearSplitK, 1},
                    {kSpecMatmulGatedAct, 1},
                    {kSpecMatmulStagesRow, 1},
                    {kSpecMatmulRowQuads, 256},
                    {kSpecMatmulExpertMode, kPairPerTile},
                    {kSpecRouteCapacity, 256},
                    {kSpecMatmulInputKind, kNormInput},
                    {kSpecUnalignedRows, 0}}}});
  keys.push_back({"decode, norm",
                  {"linear.f32",
                   {{kSpecLinearRows, 1},
                    {kSpecLinearSplitK, 1},
                    {kSpecMatmulGatedAct, 0},
                    {kSpecMatmulStagesRow, 1},
                    {kSpecMatmulRowQuads, 256},
                    {kSpecMatmulExpertMode, kDense},
                    {kSpecMatmulInputKind, kNormInput},
                    {kSpecUnalignedRows, 0},
                    {kSpecMatmulLoadsInFlight, tuning.float_loads_few_workgroups}}}});
  keys.push_back({"decode, gated norm",
                  {"linear.q4_k",
                   {{kSpecLinearRows, 1},
                    {kSpecLinearSplitK, 1},
                    {kSpecMatmulGatedAct, 0},
                    {kSpecMatmulStagesRow, 1},
                    {kSpecMatmulRowQuads, 256},
                    {kSpecMatmulExpertMode, kDense},
                    {kSpecMatmulInputKind, kGatedNormInput},
                    {kSpecUnalignedRows, 0},
                    {kSpecMatmulGateAct, 0}}}});
  for (const char* module : {"moe_down.q4_k", "moe_down.q6_k"}) {
    keys.push_back({"8 experts of 512",
                    {module,
                     {{kSpecMoeDownSegments, 18},
                      {kSpecMatmulStagesRow, 1},
                      {kSpecMatmulRowQuads, 288},
                      {kSpecMatmulExpertMode, kPairPerTile},
                      {kSpecMoeDownPrefetch, tuning.moe_down_prefetch},
                      {kSpecUnalignedRows, 0}}}});
  }
  keys.push_back({"decode",
                  {"attention.f16",
                   {{kSpecAttentionRows, 2},
                    {kSpecAttentionSplitKv, 1},
                    {kSpecAttentionFused, 1},
                    {kSpecAttentionKeyDim, 128},
                    {kSpecAttentionValueDim, 128},
                    {kSpecHeadSegments, 1},
                    {kSpecHeadFloats, 2048}}}});
  keys.push_back({"prefill",
                  {"attention.f16",
                   {{kSpecAttentionRows, 8},
                    {kSpecAttentionSplitKv, 0},
                    {kSpecAttentionFused, 0},
                    {kSpecAttentionKeyDim, 128},
                    {kSpecAttentionValueDim, 128},
                    {kSpecHeadSegments, 1},
                    {kSpecHeadFloats, 1}}}});
  if (device.has_coopmat_f16) {
    for (const int rows : {16, 32}) {
      keys.push_back({fmt::format("{} rows", rows),
                      {"attention_coopmat.f16",
                       {{kSpecAttentionRows, rows},
                        {kSpecAttentionSplitKv, 0},
                        {kSpecAttentionFused, 0},
                        {kSpecAttentionKeyDim, 128},
                        {kSpecAttentionValueDim, 128},
                        {kSpecHeadSegments, 1},
                        {kSpecHeadFloats, 1}}}});
    }
  }
  if (device.coopmat_k > 0) {
    for (const char* module : {"gemm.q8_0", "gemm_planes.q4_k", "gemm_planes.q6_k"}) {
      keys.push_back({"prefill",
                      {module,
                       {{kSpecGemmWarpRows, 4},
                        {kSpecGemmDepth, device.coopmat_k},
                        {kSpecMatmulGatedAct, 0},
                        {kSpecMatmulExpertMode, kDense}}}});
    }
  }
  for (const char* module : {"gemm_floats.f32", "gemm_floats.f16"}) {
    keys.push_back(
        {"few rows", {module, {{kSpecMatmulLoadsInFlight, tuning.float_loads_in_flight}, {kSpecUnalignedRows, 0}}}});
  }
  keys.push_back({"rows of 4096", {"norm", {{kSpecRowVec8s, 2}}}});
  keys.push_back({"rows of 2048", {"moe_combine", {{kSpecRowVec8s, 1}}}});
  keys.push_back({"few rows, k_dim 128",
                  {"delta_layer", {{kSpecDeltaStateRows, 16}, {kSpecDeltaDecodeTaps, 4}, {kSpecUnalignedRows, 0}}}});
  keys.push_back({"few rows", {"delta_finish", {}}});
  keys.push_back({"k_dim 128", {"delta_recurrent", {{kSpecDeltaStateRows, 16}}}});
  keys.push_back({"chunks", {"delta_prepare", {}}});
  keys.push_back({"chunks", {"delta_chunks", {{kSpecDeltaChunkColumns, 32}}}});
  keys.push_back({"decode, k_dim 128", {"delta_decode", {{kSpecDeltaStateRows, 16}, {kSpecDeltaDecodeTaps, 4}}}});
  keys.push_back({"first pass", {"sample_parts", {}}});
  keys.push_back({"second pass", {"sample_rows", {}}});
  return keys;
}

uint64_t value_of(const std::vector<KernelStatistic>& statistics, std::string_view name) {
  const auto found = std::ranges::find(statistics, name, &KernelStatistic::name);
  return found == statistics.end() ? 0 : found->value;
}

// Runs where Mesa's AMD driver compiles for a GPU that is not installed (RADV_FORCE_FAMILY=gfx1100). Prints the table
// of docs/performance.md.
TEST(VulkanRdna, hot_kernels_do_not_spill) {
  const Result<std::unique_ptr<Device>> device = Device::open_for_compilation("RADV");
  ASSERT_TRUE(device.ok() || !std::getenv("RADV_FORCE_FAMILY")) << device.error().message;
  if (!device.ok()) GTEST_SKIP() << "RADV_FORCE_FAMILY is not set: " << device.error().message;
  fmt::print("{}, subgroups of {}\n", device.value()->capabilities().name,
             subgroup_size(device.value()->capabilities()));
  fmt::print("| kernel | use | VGPRs | SGPRs | LDS bytes | spills | waves per SIMD | instructions | branches |\n");
  fmt::print("|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const auto& [use, key] : hot_kernels(device.value()->capabilities())) {
    const Result<std::vector<KernelStatistic>> result = device.value()->statistics(key);
    ASSERT_TRUE(result.ok()) << result.error().message;
    const std::vector<KernelStatistic>& statistics = result.value();
    const uint64_t spills = value_of(statistics, "Spilled VGPRs") + value_of(statistics, "Spilled SGPRs");
    EXPECT_GT(value_of(statistics, "VGPRs"), 0u) << "the driver's statistic names have changed";
    EXPECT_EQ(spills, 0u) << key.module << ", " << use;
    EXPECT_EQ(value_of(statistics, "Scratch size"), 0u) << key.module << ", " << use;
    fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", key.module, use, value_of(statistics, "VGPRs"),
               value_of(statistics, "SGPRs"), value_of(statistics, "LDS size"), spills,
               value_of(statistics, "Subgroups per SIMD"), value_of(statistics, "Instructions"),
               value_of(statistics, "Branches"));
  }
}

TEST(VulkanRdna, second_start_compiles_nothing) {
  if (!std::getenv("RADV_FORCE_FAMILY")) GTEST_SKIP() << "RADV_FORCE_FAMILY is not set";
  const std::filesystem::path before = get_cache_folder();
  const TestFolder folder;
  set_cache_folder(folder.path());
  size_t n_compiled[2] = {}, n_keys = 0;
  for (size_t& n : n_compiled) {
    const Result<std::unique_ptr<Device>> device = Device::open_for_compilation("RADV");
    ASSERT_TRUE(device.ok()) << device.error().message;
    const auto keys = hot_kernels(device.value()->capabilities());
    n_keys = keys.size();
    for (const auto& [use, key] : keys) EXPECT_TRUE(device.value()->pipeline(key).ok()) << key.module << use;
    device.value()->save_pipeline_cache();
    n = device.value()->counters().n_compiled;
  }
  set_cache_folder(before);
  EXPECT_EQ(n_compiled[0], n_keys);
  EXPECT_EQ(n_compiled[1], 0u);
}

}  // namespace
}  // namespace zinc::vulkan
