// What is particular to this backend; that it computes rightly is the conformance suite's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include <algorithm>
#include <set>
#include <thread>

#include "backend/vulkan/device.h"
#include "backend/vulkan/kernels.h"
#include "backend/vulkan/lowering.h"
#include "backend/vulkan/panels.h"
#include "base/cache_folder.h"
#include "tests/support/conformance.h"
#include "tests/support/test_files.h"
#include "tests/support/tested_backends.h"

namespace zinc::vulkan {
namespace {

TEST(VulkanKernels, were_made_from_the_sources_as_they_are) {
  const std::filesystem::path folder = std::filesystem::path(ZINC_SOURCE_DIR) / "src/backend/vulkan/shader";
  EXPECT_EQ(kernels_hash(), hash_sources(folder))
      << "kernels.spv is older than shader/: see Rebuilding the kernels in src/backend/vulkan/README.md";
}

TEST(VulkanKernels, there_is_one_of_every_format_with_panels) {
  for (const PanelFormat* f = kPanelFormats; !f->name.empty(); ++f) {
    EXPECT_FALSE(find_kernel("linear." + std::string(f->name)).empty()) << f->name;
    EXPECT_FALSE(find_kernel("embed." + std::string(f->name)).empty()) << f->name;
  }
  EXPECT_TRUE(find_kernel("linear.q9_9").empty());
}

TEST(VulkanDevice, the_error_for_an_unknown_name_says_which_there_are) {
  const Result<Device*> device = Device::shared("no such card");
  ASSERT_FALSE(device.ok());
  if (cpu_vulkan()->usable()) {
    EXPECT_NE(device.error().message.find("llvmpipe"), std::string::npos) << device.error().message;
  }
}

TEST(VulkanDevice, a_device_on_the_cpu_is_not_taken_unless_it_is_named) {
  const Result<Device*> device = Device::shared("");
  if (device.ok()) {
    EXPECT_NE(device.value()->capabilities().type, VK_PHYSICAL_DEVICE_TYPE_CPU);
  } else {
    EXPECT_FALSE(find_backend("vulkan").value()->usable());
  }
}

TEST(VulkanDevice, a_backend_with_one_device_refuses_a_name) {
  const Result<std::unique_ptr<Backend>> backend = open_backend("reference:llvmpipe", 1);
  ASSERT_FALSE(backend.ok());
  EXPECT_NE(backend.error().message.find("has only one"), std::string::npos) << backend.error().message;
}

TEST(VulkanDevice, bytes_come_back_as_they_were_written) {
  if (!cpu_vulkan()->usable()) GTEST_SKIP() << "llvmpipe is not installed";
  Device& device = *Device::shared("llvmpipe").value();
  std::vector<std::byte> bytes(20 << 20);  // more than is staged at once
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 >> 3);
  const Buffer buffer = std::move(device.allocate(bytes.size() + 64, "a test").value());
  ASSERT_TRUE(device.write(buffer, 64, bytes).ok());
  std::vector<std::byte> back(bytes.size());
  ASSERT_TRUE(device.read(buffer, 64, back).ok());
  EXPECT_TRUE(back == bytes);
  const size_t n_allocations = device.counters().n_allocations;
  ASSERT_TRUE(device.read(buffer, 64, back).ok());
  EXPECT_EQ(device.counters().n_allocations, n_allocations) << "what is read comes through memory that is kept";
  const Result<Buffer> huge = device.allocate(size_t{1} << 50, "a test");
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::out_of_memory);
}

// llvmpipe runs one dispatch after the other; the emulated cards are those of tests/emulated_vulkan.
TEST(VulkanDevice, workgroups_wait_for_others_only_where_they_were_seen_to_start_in_order) {
  struct Expected {
    const char* name;
    bool starts_in_order;
  };
  if (!cpu_vulkan()->usable() && !emulated_vulkan()->usable()) GTEST_SKIP() << "there is no such device";
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

TEST(VulkanDevice, its_processors_are_as_many_as_its_driver_says) {
  Capabilities device;
  device.vendor_id = 0x10DE;
  EXPECT_EQ(processors_of(device), 132) << "of the card its maker's row was tuned for";
  device.n_processors = 28;
  EXPECT_EQ(processors_of(device), 28);
}

TEST(VulkanDevice, its_memory_is_read_at_a_speed) {
  if (!cpu_vulkan()->usable()) GTEST_SKIP() << "llvmpipe is not installed";
  const double rate = cpu_vulkan()->open(1).value()->measure_peaks().read_bytes_per_s;
  EXPECT_GT(rate, 1e6);
  EXPECT_LT(rate, 1e14);
}

// A buffer written, added to and read, as models do that are loaded and used beside each other.
std::vector<Ticket> use_memory(Device& device, int number, int n_rounds, int* n_wrong) {
  std::vector<Ticket> tickets;
  for (int round = 0; round < n_rounds; ++round) {
    const std::vector<int> numbers(1000, number + round);
    const size_t n_bytes = numbers.size() * sizeof(int);
    const Buffer first = std::move(device.allocate(n_bytes, "a test").value());
    const Buffer second = std::move(device.allocate(n_bytes, "a test").value());
    std::vector<int> back(numbers.size());
    const Status written = device.write(first, 0, std::as_bytes(std::span(numbers)));
    const Result<Ticket> copied = device.copy(first, 0, second, 0, n_bytes);
    const Status read = device.read(second, 0, std::as_writable_bytes(std::span(back)));
    if (!written.ok() || !copied.ok() || !read.ok() || back != numbers) ++*n_wrong;
    if (copied.ok()) tickets.push_back(copied.value());
  }
  return tickets;
}

TEST(VulkanDevice, threads_that_share_it_get_what_each_asked_for) {
  if (!cpu_vulkan()->usable()) GTEST_SKIP() << "llvmpipe is not installed";
  Device& device = *Device::shared("llvmpipe").value();
  constexpr int kThreads = 4, kRounds = 200;
  std::array<std::vector<Ticket>, kThreads> tickets;
  std::array<int, kThreads> n_wrong{};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back(
        [&, i] { tickets[i] = use_memory(device, static_cast<int>(i) * kRounds, kRounds, &n_wrong[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<Ticket> all;
  for (size_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(n_wrong[i], 0) << "thread " << i;
    all.insert(tickets[i].begin(), tickets[i].end());
  }
  EXPECT_EQ(all.size(), size_t{kThreads * kRounds}) << "no two pieces of work have one ticket";
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

// Prints what the host takes to start a step: docs/performance.md.
void expect_tokens_that_only_submit(const BackendInfo& info, Device& device) {
  const conformance::CaseSource source = conformance::linear_cases().front();
  const conformance::Case c = source.make(source.name);
  const std::unique_ptr<Backend> backend = std::move(info.open(1).value());
  const Graph* const graph = &c.graph;
  const auto weights = std::move(backend->upload({&graph, 1}, [](auto) {}).value());
  const auto cache = std::move(backend->allocate_cache({}, {.n_pages = {}, .kv_format = find_format("f16")}).value());
  const auto plan = std::move(backend->compile(c.graph, *weights, *cache, {.max_tokens = 8, .max_outputs = 8}).value());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(run_token(*plan, c.steps[0]).ok());
  const Counters before = device.counters();
  constexpr size_t kTokens = 50;
  for (size_t i = 0; i < kTokens; ++i) ASSERT_TRUE(run_token(*plan, c.steps[0]).ok());
  const Counters after = device.counters();
  EXPECT_EQ(after.n_recordings, before.n_recordings);
  EXPECT_EQ(after.n_descriptor_sets, before.n_descriptor_sets);
  EXPECT_EQ(after.n_pipelines, before.n_pipelines);
  EXPECT_EQ(after.n_allocations, before.n_allocations);
  EXPECT_EQ(after.n_submissions, before.n_submissions + kTokens);
  EXPECT_GT(after.host_ns, before.host_ns);
  fmt::print("{}: {:.1f} us of the host's time a step\n", device.capabilities().name,
             static_cast<double>(after.host_ns - before.host_ns) / 1e3 / static_cast<double>(kTokens));
}

// Uploads, compiles and runs a graph, again and again. How many tokens differed from what it gave first.
int wrong_tokens(const BackendInfo& info, const conformance::Case& c, int n_plans, int n_tokens) {
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

TEST(VulkanPlan, models_are_loaded_and_answer_beside_each_other_on_one_device) {
  if (!cpu_vulkan()->usable()) GTEST_SKIP() << "llvmpipe is not installed";
  const std::vector<conformance::CaseSource> sources = conformance::linear_cases();
  std::array<int, 2> n_wrong{};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < n_wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      const conformance::Case c = sources[i].make(sources[i].name);
      n_wrong[i] = wrong_tokens(*cpu_vulkan(), c, 3, 20);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong[0], 0);
  EXPECT_EQ(n_wrong[1], 0);
}

TEST(VulkanPlan, a_token_records_nothing_and_allocates_nothing) {
  if (!cpu_vulkan()->usable()) GTEST_SKIP() << "llvmpipe is not installed";
  expect_tokens_that_only_submit(*cpu_vulkan(), *Device::shared("llvmpipe").value());
}

TEST(VulkanPlan, a_token_on_a_card_records_nothing_and_allocates_nothing) {
  const BackendInfo& vulkan = *find_backend("vulkan").value();
  if (!vulkan.usable()) GTEST_SKIP() << "there is no card";
  expect_tokens_that_only_submit(vulkan, *Device::shared("").value());
}

TEST(VulkanProducts, planes_are_used_only_where_the_workgroups_memory_holds_them) {
  Capabilities device;
  const auto asked = [&](std::string_view format, int warp_rows) {
    return has_planes(device, *find_panel_format(format), warp_rows);
  };
  device.shared_bytes = 48 << 10;
  EXPECT_TRUE(asked("q4_k", 4));
  EXPECT_TRUE(asked("q4_k", 2)) << "minima lie where the planes of a tile of 64 rows were";
  EXPECT_TRUE(asked("q5_k", 2));
  EXPECT_TRUE(asked("iq4_xs", 2));
  EXPECT_TRUE(asked("q6_k", 2));
  EXPECT_FALSE(asked("q8_0", 4)) << "it has no planes";
  device.shared_bytes = 40 << 10;
  EXPECT_FALSE(asked("q4_k", 2));
}

TEST(VulkanAttention, steps_of_all_sizes_take_the_same_kernel_whatever_shared_memory_there_is) {
  Capabilities device;
  device.has_half_matrices = true;
  for (const int kilobytes : {16, 32, 48, 64, 100, 227}) {
    device.shared_bytes = static_cast<size_t>(kilobytes) << 10;
    for (const int dim : {32, 64, 80, 96, 128, 192, 256, 512}) {
      AttentionSize size{.k_dim = dim, .v_dim = std::min(dim, 256), .head_eights = (dim + 255) / 256};
      const Result<AttentionShape> prompt = attention_shape(device, size);
      size.is_split = true;
      const Result<AttentionShape> few = attention_shape(device, size);
      size.is_fused = true;
      const Result<AttentionShape> one = attention_shape(device, size);
      if (!one.ok()) continue;  // the largest: it does not run at all
      EXPECT_EQ(prompt.value().key.module, one.value().key.module) << kilobytes << " KB, heads of " << dim;
      EXPECT_EQ(few.value().key.module, one.value().key.module) << kilobytes << " KB, heads of " << dim;
    }
  }
  device.shared_bytes = 48 << 10;
  EXPECT_EQ(attention_shape(device, {.k_dim = 256, .v_dim = 256}).value().key.module, "attention_matrices");
}

// The hot kernels of decode and prompts, as plans ask for them.
std::vector<std::pair<std::string, KernelKey>> hot_kernels(const Capabilities& device) {
  const Tuning& tuning = tuning_of(device);
  std::vector<std::pair<std::string, KernelKey>> keys;
  for (const char* format : {"q4_k", "q6_k", "q8_0", "q4_0", "mxfp4"}) {
    const std::string module = fmt::format("linear.{}", format);
    keys.push_back({"one row", {module, {{1, 1}, {2, 1}, {3, 0}, {4, 1}, {5, 256}, {6, 0}, {9, 1}, {20, 0}}}});
    keys.push_back(
        {"one row, gate and up", {module, {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 256}, {6, 0}, {9, 1}, {20, 0}}}});
    keys.push_back({"prompt", {module, {{1, tuning.product_rows}, {2, 0}, {3, 0}, {4, 0}, {5, 1}, {6, 0}}}});
  }
  keys.push_back({"one row, experts it finds",
                  {"linear.q4_k", {{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 256}, {6, 1}, {7, 256}, {9, 1}, {20, 0}}}});
  keys.push_back(
      {"one row, normed",
       {"linear.f32",
        {{1, 1}, {2, 1}, {3, 0}, {4, 1}, {5, 256}, {6, 0}, {9, 1}, {20, 0}, {22, tuning.float_pieces_alone}}}});
  keys.push_back({"one row, gated heads",
                  {"linear.q4_k", {{1, 1}, {2, 1}, {3, 0}, {4, 1}, {5, 256}, {6, 0}, {9, 2}, {20, 0}, {21, 0}}}});
  for (const char* module : {"mix.q4_k", "mix.q6_k"}) {
    keys.push_back({"8 experts of 512", {module, {{2, 18}, {4, 1}, {5, 288}, {6, 1}, {8, tuning.mix_ahead}, {20, 0}}}});
  }
  keys.push_back(
      {"one token", {"attention", {{1, 2}, {2, 1}, {3, 1}, {4, 128}, {5, 128}, {16, 1}, {17, 1}, {18, 2048}}}});
  keys.push_back({"prompt", {"attention", {{1, 8}, {2, 0}, {3, 0}, {4, 128}, {5, 128}, {16, 1}, {17, 1}, {18, 1}}}});
  if (device.has_half_matrices) {
    for (const int rows : {16, 32}) {
      keys.push_back(
          {fmt::format("{} rows", rows),
           {"attention_matrices", {{1, rows}, {2, 0}, {3, 0}, {4, 128}, {5, 128}, {16, 1}, {17, 1}, {18, 1}}}});
    }
  }
  if (device.matrix_depth > 0) {
    for (const char* module : {"gemm.q8_0", "gemm_planes.q4_k", "gemm_planes.q6_k"}) {
      keys.push_back({"prompt", {module, {{1, 4}, {2, device.matrix_depth}, {3, 0}, {6, 0}}}});
    }
  }
  keys.push_back({"128 keys", {"delta", {{1, 16}}}});
  keys.push_back({"chunks made ready", {"delta_prepare", {}}});
  keys.push_back({"chunks", {"delta_chunks", {{2, 32}}}});
  keys.push_back({"128 keys, one token", {"delta_one", {{1, 16}, {2, 4}}}});
  return keys;
}

uint64_t value_of(const std::vector<KernelStatistic>& statistics, std::string_view name) {
  const auto found = std::ranges::find(statistics, name, &KernelStatistic::name);
  return found == statistics.end() ? 0 : found->value;
}

// Runs where Mesa's driver for AMD cards is told to compile for one that is not there (RADV_FORCE_FAMILY=gfx1100).
// Prints the table of docs/performance.md.
TEST(VulkanRdna, hot_kernels_spill_nothing) {
  const Result<std::unique_ptr<Device>> device = Device::open_to_compile("RADV");
  ASSERT_TRUE(device.ok() || !std::getenv("RADV_FORCE_FAMILY")) << device.error().message;
  if (!device.ok()) GTEST_SKIP() << "no card to compile for was asked for: " << device.error().message;
  fmt::print("{}, subgroups of {}\n", device.value()->capabilities().name,
             subgroup_for(device.value()->capabilities()));
  fmt::print("| kernel | use | VGPRs | SGPRs | LDS bytes | spills | waves a SIMD | instructions | branches |\n");
  fmt::print("|---|---|---:|---:|---:|---:|---:|---:|---:|\n");
  for (const auto& [use, key] : hot_kernels(device.value()->capabilities())) {
    const Result<std::vector<KernelStatistic>> asked = device.value()->statistics(key);
    ASSERT_TRUE(asked.ok()) << asked.error().message;
    const std::vector<KernelStatistic>& of = asked.value();
    const uint64_t spills = value_of(of, "Spilled VGPRs") + value_of(of, "Spilled SGPRs");
    EXPECT_GT(value_of(of, "VGPRs"), 0u) << "the driver's names have changed";
    EXPECT_EQ(spills, 0u) << key.module << ", " << use;
    EXPECT_EQ(value_of(of, "Scratch size"), 0u) << key.module << ", " << use;
    fmt::print("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", key.module, use, value_of(of, "VGPRs"),
               value_of(of, "SGPRs"), value_of(of, "LDS size"), spills, value_of(of, "Subgroups per SIMD"),
               value_of(of, "Instructions"), value_of(of, "Branches"));
  }
}

TEST(VulkanRdna, a_second_start_compiles_nothing) {
  if (!std::getenv("RADV_FORCE_FAMILY")) GTEST_SKIP() << "no card to compile for was asked for";
  const std::filesystem::path before = kept_caches_folder();
  const TestFolder folder;
  keep_caches_in(folder.path());
  size_t n_compiled[2] = {}, n_keys = 0;
  for (size_t& n : n_compiled) {
    const Result<std::unique_ptr<Device>> device = Device::open_to_compile("RADV");
    ASSERT_TRUE(device.ok()) << device.error().message;
    const auto keys = hot_kernels(device.value()->capabilities());
    n_keys = keys.size();
    for (const auto& [use, key] : keys) EXPECT_TRUE(device.value()->pipeline(key).ok()) << key.module << use;
    device.value()->keep_pipelines();
    n = device.value()->counters().n_compiled;
  }
  keep_caches_in(before);
  EXPECT_EQ(n_compiled[0], n_keys);
  EXPECT_EQ(n_compiled[1], 0u);
}

}  // namespace
}  // namespace zinc::vulkan
