// Tensor parallelism: every architecture gives the logits of the undivided model within the oracle's tolerance, what is
// computed in the same order bit for bit, and the cache's operations work.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/graph_builder.h"
#include "tests/support/contains_all.h"
#include "tests/support/step_runner.h"
#include "tests/support/tested_backends.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

using Devices = std::vector<std::string>;

constexpr size_t kTokens = 40, kChunk = 13;

std::string file_of(const std::string& name, const Format& format) {
  static std::map<std::pair<std::string, std::string>, std::string> files;
  std::string& bytes = files[{name, std::string(format.name)}];
  if (bytes.empty()) {
    TinyModel model = tiny_model(name);
    model.matrix_format = &format;
    bytes = make_gguf(model);
  }
  return bytes;
}

std::unique_ptr<LoadedModel> whole(const std::string& name, std::string_view backend, const Format& format) {
  return std::move(LoadedModel::load(file_of(name, format), *find_backend(backend).value()).value());
}

std::unique_ptr<LoadedModel> divided(const std::string& name, const Devices& devices, const Format& format) {
  return std::move(LoadedModel::load_tensor_parallel(file_of(name, format), devices).value());
}

struct StepLogits {
  std::vector<float> logits, hidden;
};

StepLogits run(const LoadedModel& model, const std::vector<TokenId>& tokens, size_t chunk,
               const Format& kv_format = k_f32) {
  StepRunner runner(model, StepRunner::PageOrder::ascending, kv_format);
  TestSequence sequence = runner.new_sequence(0);
  StepLogits out;
  for (size_t at = 0; at < tokens.size(); at += chunk) {
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(at);
    const auto end = tokens.begin() + static_cast<ptrdiff_t>(std::min(tokens.size(), at + chunk));
    const SequenceOutput output = runner.step({{&sequence, static_cast<int32_t>(at), {begin, end}}})[0];
    out.logits.insert(out.logits.end(), output.logits.begin(), output.logits.end());
    out.hidden.insert(out.hidden.end(), output.hidden.begin(), output.hidden.end());
  }
  return out;
}

double relative_difference(const std::vector<float>& got, const std::vector<float>& expected) {
  if (got.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (double{got[i]} - expected[i]) * (double{got[i]} - expected[i]);
    norm += double{expected[i]} * expected[i];
  }
  return std::sqrt(error / norm);
}

class TensorParallelTest : public testing::TestWithParam<std::string> {};

TEST_P(TensorParallelTest, logits_of_2_3_and_4_devices_agree_with_the_undivided_model) {
  constexpr double kMaxError = 1e-5;  // as tests/arch_test.cc
  const std::vector<TokenId> tokens = random_tokens(kTokens, 1);
  for (const char* backend : {"reference", "cpu"}) {
    const StepLogits expected = run(*whole(GetParam(), backend, k_f32), tokens, kTokens);
    for (const size_t n_devices : {2u, 3u, 4u}) {
      SCOPED_TRACE(fmt::format("{} over {}", backend, n_devices));
      const std::unique_ptr<LoadedModel> model = divided(GetParam(), Devices(n_devices, backend), k_f32);
      const StepLogits got = run(*model, tokens, kChunk);
      EXPECT_LE(relative_difference(got.logits, expected.logits), kMaxError);
      EXPECT_LE(relative_difference(got.hidden, expected.hidden), kMaxError);
    }
  }
}

// Blocks of quantized weights are never divided. What differs in the last bits may be rounded to another 8-bit
// activation or 16-bit key: within the tolerances of tests/oracle_test.cc.
TEST_P(TensorParallelTest, quantized_weights_and_kv_formats_agree_with_the_undivided_model) {
  struct Rounding {
    const char *backend, *kv_format;
    double max_error;
  };
  const std::vector<TokenId> tokens = random_tokens(kTokens, 1);
  const Format& q8_0 = *find_format("q8_0");
  for (const auto& [backend, kv_format, max_error] :
       {Rounding{"reference", "f32", 1e-5}, {"reference", "f16", 0.008}, {"cpu", "f16", 0.03}, {"cpu", "q8_0", 0.03}}) {
    const Format& kv = *find_format(kv_format);
    const StepLogits expected = run(*whole(GetParam(), backend, q8_0), tokens, kChunk, kv);
    const StepLogits got = run(*divided(GetParam(), {backend, backend}, q8_0), tokens, kChunk, kv);
    EXPECT_LE(relative_difference(got.logits, expected.logits), max_error) << backend << " with " << kv_format;
  }
}

TEST_P(TensorParallelTest, every_device_has_a_part_of_the_weights_and_of_the_cache) {
  const std::unique_ptr<LoadedModel> one = whole(GetParam(), "cpu", k_f16);
  const std::unique_ptr<LoadedModel> model = divided(GetParam(), {"cpu", "cpu"}, k_f16);
  const size_t n_whole = one->weights().device_bytes();
  const size_t n_first = model->weights().device_bytes_on(0), n_last = model->weights().device_bytes_on(1);
  EXPECT_LT(n_first, n_whole * 2 / 3);
  EXPECT_LT(n_last, n_whole);
  EXPECT_GT(n_first, n_whole / 8);
  EXPECT_LT(n_first + n_last, n_whole * 3 / 2) << "little is on both";
  StepRunner unsplit(*one), split(*model);
  for (size_t g = 0; g < unsplit.groups().size(); ++g) {
    const bool shares_key_heads = GetParam().starts_with("gemma4");  // fewer key heads than devices in some layers
    const size_t n_page = unsplit.cache().page_bytes(static_cast<int>(g));
    EXPECT_EQ(split.cache().page_bytes(static_cast<int>(g)) == n_page || shares_key_heads, true);
  }
  EXPECT_EQ(split.cache().state_bytes(), unsplit.cache().state_bytes());
}

// Values of one step at position 0, on a plan that keeps them.
class KeptValues {
 public:
  KeptValues(const LoadedModel& model, const std::vector<TokenId>& tokens) {
    const std::vector<PageGroup> groups = page_groups(model.model().caches);
    const std::vector<int> n_pages(groups.size(), 1);
    cache_ =
        std::move(model.backend()
                      .allocate_cache(model.model().caches, {.n_pages = n_pages, .n_slots = 1, .kv_format = &k_f32})
                      .value());
    const int n = static_cast<int>(tokens.size());
    plan_ = std::move(model.backend()
                          .compile(model.model().graph, model.weights(), *cache_,
                                   {.max_tokens = n, .max_seqs = 1, .max_outputs = 1, .keep_values = true})
                          .value());
    std::vector<int32_t> positions(tokens.size());
    for (int t = 0; t < n; ++t) positions[static_cast<size_t>(t)] = t;
    const int32_t seq_begin[] = {0, n}, slot = 0, last = n - 1;
    const PageId page = 0;
    const std::vector<PageTable> tables(groups.size(), {{&page, 1}, 1});
    plan_->start({.tokens = tokens,
                  .positions = positions,
                  .seq_begin = seq_begin,
                  .slots = {&slot, 1},
                  .page_tables = tables,
                  .output_rows = {&last, 1},
                  .logit_rows = {},
                  .hidden = {}});
    ZINC_CHECK(plan_->wait().ok());
  }
  std::vector<float> of(Value v) const {
    const std::span<const float> value = plan_->value(v);
    return {value.begin(), value.end()};
  }

 private:
  std::unique_ptr<CacheMemory> cache_;
  std::unique_ptr<Plan> plan_;
};

// Up to the first sum nothing is computed in another order: heads, channels and elements are whole on one device.
TEST_P(TensorParallelTest, what_is_before_the_first_sum_is_bit_equal) {
  const std::vector<TokenId> tokens = random_tokens(9, 1);
  for (const char* backend : {"reference", "cpu"}) {
    const std::unique_ptr<LoadedModel> one = whole(GetParam(), backend, k_f16);
    const std::unique_ptr<LoadedModel> model = divided(GetParam(), {backend, backend}, k_f16);
    const KeptValues expected(*one, tokens), got(*model, tokens);
    const Graph& graph = one->model().graph;
    bool has_heads = false;
    for (const Node& node : graph.nodes()) {
      if (node.op != Op::attention && node.op != Op::delta_net) continue;
      has_heads = true;
      EXPECT_EQ(got.of(node.out[0]), expected.of(node.out[0])) << backend;
      break;
    }
    EXPECT_TRUE(has_heads);
    EXPECT_LE(relative_difference(got.of(graph.logits()), expected.of(graph.logits())), 1e-5) << backend;
    const Value sum = graph.find("l_out-0");  // partial sums, put together
    ASSERT_TRUE(bool(sum));
    EXPECT_LE(relative_difference(got.of(sum), expected.of(sum)), 1e-5) << backend;
  }
}

// Two steps in flight, the second with the tokens that the first one samples; beside another sequence.
TEST_P(TensorParallelTest, steps_in_flight_and_batches_give_the_bits_of_single_steps) {
  const std::unique_ptr<LoadedModel> model = divided(GetParam(), {"cpu", "cpu"}, *find_format("q8_0"));
  const std::vector<TokenId> tokens = random_tokens(9, 2), other_tokens = random_tokens(7, 3);
  StepRunner runner(*model), alone(*model);
  TestSequence sequence = runner.new_sequence(3), other = runner.new_sequence(1), expected = alone.new_sequence(0);
  TokenId next = alone.step({{&expected, 0, tokens}})[0].sampled.back();
  runner.start({{&sequence, 0, tokens}, {&other, 0, other_tokens}});
  for (int32_t at = 9; at < 13; ++at) {
    runner.start({{&sequence, at, {kFromDevice}}});
    runner.wait();
    const std::vector<float> logits = alone.step({{&expected, at, {next}}})[0].logits;
    next = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
  }
  EXPECT_EQ(runner.wait().sampled.back(), next);
}

TEST_P(TensorParallelTest, copied_and_restored_pages_and_states_continue_the_sequence) {
  const std::vector<TokenId> tokens = random_tokens(24, 3), more = random_tokens(5, 4);
  const std::unique_ptr<LoadedModel> model = divided(GetParam(), {"cpu", "cpu"}, *find_format("q8_0"));
  StepRunner runner(*model);
  TestSequence sequence = runner.new_sequence(0), copy = runner.new_sequence(1), restored = runner.new_sequence(2);
  runner.step({{&sequence, 0, tokens}});
  CacheMemory& cache = runner.cache();
  cache.copy_state(0, 1);
  std::vector<std::byte> state(cache.state_bytes());
  ASSERT_TRUE(cache.read_state(0, state).ok());
  ASSERT_TRUE(cache.write_state(2, state).ok());
  for (size_t g = 0; g < runner.groups().size(); ++g) {
    for (TestSequence* to : {&copy, &restored}) to->pages[g].push_back(runner.allocate_page(static_cast<int>(g)));
    const int group = static_cast<int>(g);
    cache.copy_page(group, sequence.pages[g][0], copy.pages[g][0]);
    std::vector<std::byte> page(cache.page_bytes(group));
    ASSERT_TRUE(cache.read_page(group, sequence.pages[g][0], page).ok());
    ASSERT_TRUE(cache.write_page(group, restored.pages[g][0], page).ok());
  }
  const std::vector<float> expected = runner.step({{&sequence, 24, more}})[0].logits;
  EXPECT_EQ(runner.step({{&copy, 24, more}})[0].logits, expected);
  EXPECT_EQ(runner.step({{&restored, 24, more}})[0].logits, expected);
}

TEST_P(TensorParallelTest, the_draft_graph_runs_whole_on_the_last_device) {
  const Format& q8_0 = *find_format("q8_0");
  const std::unique_ptr<LoadedModel> one = whole(GetParam(), "cpu", q8_0);
  if (!one->model().draft) return;
  const std::vector<TokenId> tokens = random_tokens(20, 5);
  const std::unique_ptr<LoadedModel> model = divided(GetParam(), {"cpu", "cpu"}, q8_0);
  StepRunner runner(*one), split(*model);
  TestSequence sequence = runner.new_sequence(0), same = split.new_sequence(0);
  const std::vector<float> hidden = runner.step({{&sequence, 0, tokens}})[0].hidden;
  split.step({{&same, 0, tokens}});
  EXPECT_EQ(split.draft_step({{&same, 0, tokens, hidden}})[0].logits,
            runner.draft_step({{&sequence, 0, tokens, hidden}})[0].logits);
}

// As Gemma 4's assistant does.
TEST(TensorParallelDraft, graph_that_reads_the_divided_cache_of_the_model_is_refused) {
  const std::unique_ptr<LoadedModel> model = divided("qwen3", {"cpu", "cpu"}, k_f16);
  const Graph& target = model->model().graph;
  GraphBuilder g(
      "draft", [](std::string_view) { return nullptr; }, &target);
  const AttentionCache& kv = target.caches()[0].attention;
  const Value x = g.hidden_in(int64_t{kv.kv_heads} * kv.k_dim);
  const Value a = g.attention({g.heads(x, kv.kv_heads), {}, {}}, {.cache_layer = 0});
  g.hidden(a);
  g.logits(g.linear(g.rows(a), g.target_weight("token_embd.weight")));
  const Graph draft = std::move(g.finish().value());
  const std::unique_ptr<CacheMemory> cache =
      std::move(model->backend()
                    .allocate_cache(model->model().caches, {.n_pages = {1}, .n_slots = 1, .kv_format = &k_f32})
                    .value());
  const Result<std::unique_ptr<Plan>> plan = model->backend().compile(draft, model->weights(), *cache, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_TRUE(contains_all(plan.error().message, {"cache of layer 0", "divided over the devices", "--split layers"}))
      << plan.error().message;
}

// A device of the CPU backend whose plans log their calls and may fail.
class LoggedDevice final : public Backend {
 public:
  struct Log {
    std::vector<std::string> calls;
    int failing_device = -1;
  };
  LoggedDevice(int device, Log& log) : cpu_(std::move(open_backend("cpu", 1).value())), device_(device), log_(log) {}
  DeviceInfo info() const override { return cpu_->info(); }
  DevicePeaks measure_peaks() override { return cpu_->measure_peaks(); }
  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const ReleaseFilePages& release) override {
    return cpu_->upload(graphs, release);
  }
  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    return cpu_->allocate_cache(layers, sizes);
  }
  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    Bucket own_bucket = bucket;
    own_bucket.shares_memory_with = nullptr;  // the other plan is a LoggedPlan
    ZINC_TRY(plan, cpu_->compile(graph, weights, cache, own_bucket));
    return std::unique_ptr<Plan>(std::make_unique<LoggedPlan>(std::move(plan), device_, log_));
  }
  std::unique_ptr<Backend> without_memory() override { return cpu_->without_memory(); }

 private:
  class LoggedPlan final : public Plan {
   public:
    LoggedPlan(std::unique_ptr<Plan> plan, int device, Log& log) : plan_(std::move(plan)), device_(device), log_(log) {}
    size_t device_bytes() const override { return plan_->device_bytes(); }
    void start(const StepInputs& inputs) override {
      log_.calls.push_back(fmt::format("start {}", device_));
      plan_->start(inputs);
    }
    Result<StepOutput> wait() override {
      log_.calls.push_back(fmt::format("wait {}", device_));
      Result<StepOutput> out = plan_->wait();
      if (log_.failing_device == device_) return fail(ErrorCode::device_lost, "device {} is lost", device_);
      return out;
    }
    std::span<const float> value(Value v) const override { return plan_->value(v); }

   private:
    std::unique_ptr<Plan> plan_;
    int device_;
    Log& log_;
  };

  std::unique_ptr<Backend> cpu_;
  int device_;
  Log& log_;
};

TEST(TensorPlan, all_devices_start_a_stage_before_any_is_waited_for_and_a_failure_leaves_none_in_flight) {
  const std::unique_ptr<LoadedModel> model = whole("qwen3", "cpu", k_f16);
  const Graph& graph = model->model().graph;
  LoggedDevice::Log log;
  std::shared_ptr<ShardedGraph> shards = std::move(shard_graph(graph, 2).value());
  EXPECT_EQ(shards->stages.size(), 2 * 2 + 2u) << "two sums per layer, and the token embedding";
  const std::unique_ptr<Backend> backend = split::make_tensor_backend(
      graph, shards, {std::make_shared<LoggedDevice>(0, log), std::make_shared<LoggedDevice>(1, log)});
  const Graph* const graphs[] = {&graph};
  const std::unique_ptr<DeviceWeights> weights = std::move(backend->upload(graphs, [](auto) {}).value());
  const std::unique_ptr<CacheMemory> cache = std::move(
      backend->allocate_cache(model->model().caches, {.n_pages = {1}, .n_slots = 1, .kv_format = &k_f32}).value());
  const std::unique_ptr<Plan> plan = std::move(backend->compile(graph, *weights, *cache, {}).value());
  const TokenId token = 1;
  const int32_t position = 0, seq_begin[] = {0, 1}, slot = 0, row = 0;
  const PageId page = 0;
  const PageTable table{{&page, 1}, 1};
  const auto step = [&] {
    plan->start({.tokens = {&token, 1},
                 .positions = {&position, 1},
                 .seq_begin = seq_begin,
                 .slots = {&slot, 1},
                 .page_tables = {&table, 1},
                 .output_rows = {&row, 1},
                 .logit_rows = {&row, 1},
                 .hidden = {}});
    return plan->wait();
  };
  const Result<StepOutput> first = step();
  ASSERT_TRUE(first.ok());
  const std::vector<float> expected(first.value().logits.begin(), first.value().logits.end());
  std::vector<std::string> calls = {"start 1", "wait 1"};  // embeds
  for (int sum = 0; sum < 4; ++sum) calls.insert(calls.end(), {"start 0", "start 1", "wait 0", "wait 1"});
  calls.insert(calls.end(), {"start 1", "wait 1"});  // the output head
  EXPECT_EQ(log.calls, calls);
  log.calls.clear();
  log.failing_device = 0;
  const Result<StepOutput> failed = step();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "device 0 is lost");
  EXPECT_EQ(log.calls, (std::vector<std::string>{"start 1", "wait 1", "start 0", "start 1", "wait 0", "wait 1"}));
  log.failing_device = -1;
  const Result<StepOutput> again = step();
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(std::ranges::equal(again.value().logits, expected));
}

// Where heads or blocks are not enough, fewer devices have a part, and the layout says so.
TEST(ShardLayout, blocks_and_heads_that_are_not_enough_for_all_devices_stay_whole) {
  const std::unique_ptr<LoadedModel> model = whole("qwen3", "reference", *find_format("q8_0"));
  const Graph& graph = model->model().graph;
  const std::unique_ptr<ShardedGraph> shards = std::move(shard_graph(graph, 4).value());
  const std::vector<std::string> notes = shards->layout.notes();
  ASSERT_EQ(notes.size(), 1u);  // 96 elements of the FFN are 3 blocks
  EXPECT_TRUE(contains_all(notes[0], {"ffn_down.weight of 2 layers", "on 3 of 4 devices"})) << notes[0];
  EXPECT_TRUE(shard_graph(graph, 2).value()->layout.notes().empty());
}

// GPUs: those of this machine, llvmpipe, and the emulated one where it is found. One GPU computes both parts.
class GpuTensorParallelTest : public testing::TestWithParam<const BackendInfo*> {};

TEST_P(GpuTensorParallelTest, parts_on_a_gpu_agree_with_the_reference) {
  const std::string gpu(GetParam()->name);
  const std::vector<TokenId> tokens = random_tokens(12, 1);
  const std::string model = "qwen35moe";  // recurrent layers and experts
  const StepLogits expected = run(*whole(model, "reference", k_f16), tokens, 5);
  const StepLogits got = run(*divided(model, {gpu, gpu}, k_f16), tokens, 5);
  EXPECT_LE(relative_difference(got.logits, expected.logits), 1e-5);
  EXPECT_LE(relative_difference(got.hidden, expected.hidden), 1e-5);
}

std::vector<const BackendInfo*> gpus() {
  std::vector<const BackendInfo*> all;
  for (const BackendInfo* backend : available_backends()) {
    if (backend->devices) all.push_back(backend);
  }
  return all;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuTensorParallelTest);
INSTANTIATE_TEST_SUITE_P(Gpus, GpuTensorParallelTest, testing::ValuesIn(gpus()), [](const auto& test) {
  std::string name(test.param->name);
  std::ranges::replace(name, ':', '_');
  return name;
});

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const TinyModel& model : tiny_models()) names.push_back(model.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, TensorParallelTest, testing::ValuesIn(model_names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

}  // namespace
}  // namespace zinc
