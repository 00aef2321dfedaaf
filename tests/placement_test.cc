// Which layers run on which device: chosen, as the user wants, or refused with a setting that fits. Layouts only, most
// tests upload nothing. llvmpipe stands for a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "backend/split/measure_sum.h"
#include "engine/engine_memory.h"
#include "engine/model_fingerprint.h"
#include "engine/placement.h"
#include "engine/split_times.h"
#include "tests/support/contains_all.h"
#include "tests/support/serving.h"
#include "tests/support/tested_backends.h"

namespace zinc {
namespace {

constexpr const char* kGpu = "vulkan:llvmpipe";
const EngineOptions kEngine = {.max_sequences = 1, .context = 256, .step_tokens = 32};

class PlacementTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu_vulkan() || !cpu_vulkan()->is_available()) GTEST_SKIP() << "no llvmpipe";
  }
  static Result<ModelInstance> open(std::string_view model, std::string devices, PlacementOptions placement) {
    return ModelInstance::open(model_path(model), {.backend = std::move(devices),
                                                   .n_threads = 1,
                                                   .kv_format = find_format("f16"),
                                                   .placement = std::move(placement),
                                                   .engine = &kEngine});
  }
  static std::string error_of(std::string_view model, std::string devices, PlacementOptions placement) {
    const Result<ModelInstance> opened = open(model, std::move(devices), std::move(placement));
    return opened.ok() ? "no error" : opened.error().message;
  }
  // "cpu:0+2 vulkan:llvmpipe:2+4": the first layer and the number of layers of each device.
  static std::string layers_of(const ModelInstance& model) {
    std::string text;
    for (const ModelDevice& device : model.devices()) {
      text += fmt::format("{}{} {}+{}", text.empty() ? "" : ", ", device.name, device.first_layer, device.n_layers);
      if (device.n_expert_layers > 0) text += fmt::format(" and {} experts", device.n_expert_layers);
    }
    return text;
  }
  static std::string layers_with(std::string_view model, std::string devices, PlacementOptions placement) {
    const Result<ModelInstance> opened = open(model, std::move(devices), std::move(placement));
    return opened.ok() ? layers_of(opened.value()) : opened.error().message;
  }
};

TEST_F(PlacementTest, a_model_that_fits_the_gpu_is_not_split) {
  EXPECT_EQ(layers_with("tiny qwen35moe", fmt::format("{},cpu", kGpu), {}), fmt::format("{} 0+3", kGpu));
}

TEST_F(PlacementTest, less_gpu_memory_moves_experts_and_then_layers_to_the_cpu) {
  const ModelInstance whole = std::move(open("tiny qwen35moe", kGpu, {}).value());
  const ModelMemory needed = std::move(least_engine_memory(whole, kEngine).value())[0];
  int n_gpu_layers = 3, n_experts = 0, n_placements = 0;
  bool is_refused = false;
  for (size_t percent = 0; percent <= 100 && !is_refused; percent += 5) {  // most of the need is the upload's
    const size_t limit = least_limit(needed) - needed.weight_bytes * percent / 100;
    const Result<ModelInstance> opened = open("tiny qwen35moe", fmt::format("{},cpu", kGpu), {.gpu_memory = limit});
    if (!opened.ok()) {
      EXPECT_TRUE(contains_all(opened.error().message, {"not one layer fits", "--kv q8_0", "--device cpu"}))
          << opened.error().message;
      is_refused = true;
      continue;
    }
    const std::vector<ModelMemory> memory = std::move(least_engine_memory(opened.value(), kEngine).value());
    const std::span<const ModelDevice> devices = opened.value().devices();
    EXPECT_LE(least_limit(memory.back()), limit);
    EXPECT_LE(devices.back().n_layers, n_gpu_layers);
    if (devices.back().n_layers == n_gpu_layers) {
      EXPECT_GE(devices[0].n_expert_layers, n_experts);
    }
    n_placements += devices.back().n_layers != n_gpu_layers || devices[0].n_expert_layers != n_experts;
    n_gpu_layers = devices.back().n_layers;
    n_experts = devices[0].n_expert_layers;
    EXPECT_TRUE(plan_engine_memory(opened.value(), opened.value().memory_limits(), kEngine).ok()) << percent;
  }
  EXPECT_GE(n_placements, 3);
  EXPECT_TRUE(is_refused);
}

TEST_F(PlacementTest, the_user_chooses_layers_and_experts) {
  const std::string both = fmt::format("{},cpu", kGpu);
  EXPECT_EQ(layers_with("tiny qwen35moe", kGpu, {.gpu_layers = 1}), fmt::format("cpu 0+2, {} 2+1", kGpu));
  EXPECT_EQ(layers_with("tiny qwen35moe", both, {.gpu_layers = 99}), fmt::format("{} 0+3", kGpu));
  EXPECT_EQ(layers_with("tiny qwen35moe", both, {.cpu_experts = 2}),
            fmt::format("cpu 0+0 and 2 experts, {} 0+3", kGpu));
  EXPECT_EQ(layers_with("tiny qwen35moe", kGpu, {.cpu_experts = PlacementOptions::kAllLayers}),
            fmt::format("cpu 0+0 and 3 experts, {} 0+3", kGpu));
  EXPECT_EQ(layers_with("tiny qwen35moe", kGpu, {.gpu_layers = 2, .cpu_experts = 1}),
            fmt::format("cpu 0+1 and 1 experts, {} 1+2", kGpu));
  EXPECT_EQ(layers_with("tiny qwen35moe", both, {.split = {3, 1}}), fmt::format("cpu 0+1, {} 1+2", kGpu))
      << "in the order of --device; the CPU runs the first layers";
}

TEST_F(PlacementTest, experts_are_streamed_to_gpus_with_memory_of_their_own_or_as_the_user_wants) {
  const auto streamed = [](PlacementOptions placement) {
    placement.cpu_experts = PlacementOptions::kAllLayers;
    const Result<ModelInstance> opened = open("tiny qwen35moe", kGpu, placement);
    return opened.ok() ? opened.value().stages().streamed_tokens : -1;
  };
  EXPECT_EQ(streamed({}), 0) << "llvmpipe computes in the host's memory";
  EXPECT_EQ(streamed({.streamed_tokens = 16}), 16);
  EXPECT_EQ(streamed({.streamed_tokens = 64}), 0) << "no step has so many prompt tokens";
  EXPECT_EQ(streamed({.streamed_tokens = 0}), 0);
}

// Keys and values depend on the device that computed them, and where a prompt can be resumed on the copied chunks.
TEST_F(PlacementTest, a_prefix_cache_is_saved_for_one_placement_of_the_experts) {
  std::set<Sha256::Digest> fingerprints;
  for (const auto& [n_layers, streamed_tokens] : {std::pair(1, 0), {2, 0}, {2, 16}, {2, 32}}) {
    ModelInstance model =
        std::move(open("tiny qwen35moe", kGpu, {.cpu_experts = n_layers, .streamed_tokens = streamed_tokens}).value());
    ASSERT_TRUE(model.upload().ok());
    EXPECT_TRUE(fingerprints.insert(fingerprint_of(model, "zinc").value()).second)
        << n_layers << " layers, chunks of " << streamed_tokens;
  }
}

TEST_F(PlacementTest, options_that_cannot_apply_are_errors) {
  EXPECT_TRUE(contains_all(error_of("tiny qwen3", "cpu", {.gpu_layers = 1}), {"--gpu-layers is for GPUs", "cpu"}));
  EXPECT_TRUE(contains_all(error_of("tiny qwen3", "cpu", {.gpu_memory = 1 << 30}), {"--gpu-memory is for GPUs"}));
  for (const char* devices : {"cpu", "cpu,reference"}) {
    const std::string experts = error_of("tiny qwen35moe", devices, {.cpu_experts = 1});
    EXPECT_TRUE(contains_all(experts, {"--cpu-experts is for GPUs"})) << experts;
  }
  EXPECT_TRUE(contains_all(error_of("tiny qwen3", kGpu, {.cpu_experts = 1}), {"no routed experts", "--gpu-layers"}));
  EXPECT_TRUE(contains_all(error_of("tiny qwen3", "cpu,reference", {.split = {1}}), {"1 ratios for 2 devices"}));
  EXPECT_TRUE(contains_all(error_of("tiny qwen3", "cpu,cpu", {}), {"names cpu twice"}));
}

TEST_F(PlacementTest, what_does_not_fit_is_refused_with_a_setting_that_does) {
  const std::string alone = error_of("tiny qwen35moe", kGpu, {.gpu_memory = 10000});
  EXPECT_TRUE(contains_all(alone, {"do not fit in the 10 kB", "--device vulkan:llvmpipe,cpu"})) << alone;
  const std::string layers = error_of("tiny qwen35moe", kGpu, {.gpu_layers = 2, .gpu_memory = 1 << 20});
  EXPECT_TRUE(contains_all(layers, {"layers 1-2 do not fit vulkan:llvmpipe", "fewer --gpu-layers"})) << layers;
}

TEST_F(PlacementTest, the_table_has_a_line_per_device) {
  const ModelInstance model = std::move(open("tiny qwen35moe", kGpu, {.gpu_layers = 2}).value());
  const EngineMemory memory = std::move(plan_engine_memory(model, model.memory_limits(), kEngine).value());
  const std::vector<double> rates = {1e9, 0};
  const std::string table = placement_table(model, memory.devices, rates);
  EXPECT_EQ(std::ranges::count(table, '\n'), 3) << table;
  EXPECT_TRUE(contains_all(table, {"device", "KV cache", "cpu", "layers 0-0", "vulkan:llvmpipe", "layers 1-2", " ms"}))
      << table;
}

Result<ModelInstance> open_divided(std::string_view model, std::string devices, PlacementOptions placement) {
  placement.split_mode = SplitMode::tensor;
  return ModelInstance::open(model_path(model), {.backend = std::move(devices),
                                                 .n_threads = 1,
                                                 .kv_format = find_format("f16"),
                                                 .placement = std::move(placement),
                                                 .engine = &kEngine});
}

std::string tensor_error(std::string devices, PlacementOptions placement) {
  const Result<ModelInstance> opened = open_divided("tiny qwen3", std::move(devices), std::move(placement));
  return opened.ok() ? "no error" : opened.error().message;
}

TEST(TensorParallelPlacement, what_cannot_apply_is_an_error) {
  EXPECT_TRUE(contains_all(tensor_error("cpu", {}), {"at least 2 devices", "--device cuda:0,cuda:1"}));
  EXPECT_TRUE(contains_all(tensor_error("cpu,cpu", {}), {"names cpu twice"}));
  if (!cpu_vulkan() || !cpu_vulkan()->is_available()) GTEST_SKIP() << "no llvmpipe";
  const std::string both = fmt::format("cpu,{}", kGpu);
  EXPECT_TRUE(contains_all(tensor_error(both, {}), {"devices of one kind", "cpu", kGpu, "--split layers"}));
  EXPECT_TRUE(contains_all(tensor_error(both, {.gpu_layers = 1}), {"leave out --gpu-layers"}));
  EXPECT_TRUE(contains_all(tensor_error(both, {.cpu_experts = 1}), {"leave out --cpu-experts"}));
}

TEST(TensorParallelPlacement, every_device_has_a_part_of_every_layer) {
  const ModelInstance model = std::move(open_divided("tiny qwen35moe", "cpu,reference", {}).value());
  ASSERT_TRUE(model.shards());
  const EngineMemory memory = std::move(plan_engine_memory(model, model.memory_limits(), kEngine).value());
  const std::vector<double> rates = {1e9, 1e9};
  const std::string table = placement_table(model, memory.devices, rates);
  EXPECT_TRUE(contains_all(table, {"cpu", "reference", "a part of layers 0-2", " ms", "split: tensor parallel, with"}))
      << table;
  for (const ModelMemory& device : memory.devices) {
    EXPECT_GT(device.weight_bytes, 0u);
    EXPECT_GT(device.cache_bytes, 0u);
  }
}

// 6 ms of weights per GPU, half of them on each.
TEST(TensorParallelPlacement, pays_if_the_sums_take_less_time_than_the_weights_that_are_read_at_once) {
  const ModelInstance model = std::move(open_divided("tiny qwen35moe", "cpu,reference", {}).value());
  const Graph& graph = model.model().graph;
  const std::vector<double> rates = {1e6, 1e6};
  const SplitTimes fast = estimate_split_times(graph, *model.shards(), rates, 1e-6);
  EXPECT_TRUE(fast.is_tensor_faster());
  EXPECT_LT(fast.tensor_s, 0.85 * fast.layers_s);
  EXPECT_GT(fast.tensor_s, 0.5 * fast.layers_s) << "the output head is on one device";
  EXPECT_EQ(fast.n_sums, 2 * 3 + 1);
  EXPECT_TRUE(split_times_text(fast).starts_with("tensor parallel, because")) << split_times_text(fast);
  const SplitTimes slow = estimate_split_times(graph, *model.shards(), rates, 0.1);
  EXPECT_FALSE(slow.is_tensor_faster());
  EXPECT_TRUE(contains_all(split_times_text(slow), {"whole layers, because", "7 sums of 100000 us"}))
      << split_times_text(slow);
}

TEST(TensorParallelPlacement, rates_are_measured) {
  const ModelInstance model = std::move(open_divided("tiny qwen3", "cpu,reference", {}).value());
  std::vector<std::shared_ptr<Backend>> devices;
  for (const ModelDevice& device : model.devices()) devices.push_back(device.backend);
  const Result<double> seconds = split::measure_sum_seconds(devices, 256);
  ASSERT_TRUE(seconds.ok()) << seconds.error().message;
  EXPECT_GT(seconds.value(), 0);
  EXPECT_LT(seconds.value(), 1);
  const std::vector<ModelDevice> cpus = {model.devices()[0], model.devices()[0]};  // the reference does not measure
  const Result<SplitTimes> times = measure_split_times(model.model(), *model.shards(), cpus);
  ASSERT_TRUE(times.ok()) << times.error().message;
  EXPECT_GT(times.value().layers_s, 0);
}

// Each part alone would fit.
TEST(SharedHostMemory, of_several_devices_is_counted_once) {
  const auto open = [](size_t limit) {
    return ModelInstance::open(model_path("tiny qwen3"),
                               {.backend = "cpu,reference", .n_threads = 1, .memory_limit = limit, .engine = &kEngine});
  };
  const ModelInstance model = std::move(open(1 << 30).value());
  const std::vector<ModelMemory> parts = std::move(least_engine_memory(model, kEngine).value());
  const size_t largest = std::max(least_limit(parts[0]), least_limit(parts[1])), all = least_limit(sum_of(parts));
  ASSERT_LT(largest, all * 9 / 10);
  const Result<ModelInstance> refused = open(all * 9 / 10);
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(contains_all(refused.error().message, {"does not fit cpu and reference, which share the host's memory"}))
      << refused.error().message;
  EXPECT_TRUE(open(all).ok());
  EXPECT_TRUE(plan_engine_memory(model, all, kEngine).ok());
  EXPECT_FALSE(plan_engine_memory(model, all / 2, kEngine).ok());
  const EngineOptions larger = {.max_sequences = 4, .step_tokens = 32};
  const Result<EngineMemory> planned = plan_engine_memory(model, 3 * all, larger);
  ASSERT_TRUE(planned.ok()) << planned.error().message;
  EXPECT_LE(planned.value().bytes(), 3 * all);
}

// Only where a GPU is the default backend: an entry runs it on the emulated one.
TEST(AutomaticPlacement, a_model_that_does_not_fit_the_gpu_is_split) {
  if (!default_backend().devices) return;
  const auto open = [](size_t gpu_memory) {
    LoadOptions options{.backend = "", .n_threads = 1, .engine = &kEngine};
    options.placement.gpu_memory = gpu_memory;
    return std::move(ModelInstance::open(model_path("tiny qwen35moe"), options).value());
  };
  const ModelInstance whole = open(0);
  ASSERT_EQ(whole.devices().size(), 1u);
  EXPECT_FALSE(whole.is_placed_automatically());
  const ModelMemory needed = std::move(least_engine_memory(whole, kEngine).value())[0];
  const ModelInstance split = open(least_limit(needed) - needed.weight_bytes / 2);
  ASSERT_EQ(split.devices().size(), 2u);
  EXPECT_TRUE(split.is_placed_automatically());
  EXPECT_EQ(split.devices()[0].name, "cpu");
  EXPECT_EQ(split.devices()[1].name, default_backend().name);
}

// Two emulated GPUs: an entry runs it where they are the default backend.
TEST(AutomaticPlacement, two_gpus_divide_layers_only_if_that_is_estimated_to_be_faster) {
  if (!default_backend().devices) return;
  ::setenv("ZINC_EMULATED_GPUS", "2", /*overwrite=*/1);
  if (default_backend().devices().size() < 2) return;
  const auto open = [](SplitMode mode) {
    LoadOptions options{.backend = "cuda:0,cuda:1", .n_threads = 1, .engine = &kEngine};
    options.placement.split_mode = mode;
    return std::move(ModelInstance::open(model_path("tiny qwen35moe"), options).value());
  };
  const ModelInstance chosen = open(SplitMode::automatic);
  ASSERT_EQ(chosen.devices().size(), 2u);
  EXPECT_TRUE(chosen.split_reason().starts_with(chosen.shards() ? "tensor parallel, because" : "whole layers, because"))
      << chosen.split_reason();
  EXPECT_TRUE(open(SplitMode::tensor).shards());
  EXPECT_FALSE(open(SplitMode::layers).shards());
  EXPECT_TRUE(open(SplitMode::layers).split_reason().empty());
}

}  // namespace
}  // namespace zinc
