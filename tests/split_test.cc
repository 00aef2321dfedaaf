// Models split over several devices: every architecture gives the logits of the unsplit model, bit for bit if the
// devices are of one kind; and the engine serves on a split model as on one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/support/step_runner.h"
#include "tests/support/tested_backends.h"
#include "tests/support/tiny_model.h"

namespace zinc {
namespace {

using Devices = std::vector<std::string>;
using StagesOf = std::function<split::Stages(const Graph&)>;

constexpr size_t kTokens = 40, kChunk = 13;

std::string model_text(const TinyModel& model) {
  std::string name = model.name;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

const TinyModel& with_matrices(const TinyModel& model, const Format& format) {
  static std::map<std::pair<std::string, std::string>, TinyModel> models;
  TinyModel& copy = models.try_emplace({model.name, std::string(format.name)}, model).first->second;
  copy.matrix_format = &format;
  return copy;
}

// Whole layers, as many on each device as on the others; fewer stages if the model cannot be cut so often.
split::Stages layers_over(const Graph& graph, size_t n_devices) {
  std::vector<int> cuts = layer_cuts(graph);
  if (cuts.front() == 0) cuts.erase(cuts.begin());
  split::Stages stages;
  for (size_t d = 0; d < n_devices; ++d) {
    if (d > 0) {
      const size_t at = cuts.size() * d / n_devices;
      stages.cuts.push_back(cuts[at]);
    }
    stages.devices.push_back(d);
  }
  return stages;
}

struct StepLogits {
  std::vector<float> logits, hidden;
};

StepLogits run(const LoadedModel& model, const std::vector<TokenId>& tokens, size_t chunk) {
  StepRunner runner(model);
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

class SplitTest : public testing::TestWithParam<std::string> {
 protected:
  const TinyModel& tiny() const { return tiny_model(GetParam()); }
  const std::string& file(const Format& format) const {
    static std::map<std::pair<std::string, std::string>, std::string> files;
    std::string& bytes = files[{GetParam(), std::string(format.name)}];
    if (bytes.empty()) bytes = make_gguf(with_matrices(tiny(), format));
    return bytes;
  }
  std::unique_ptr<LoadedModel> whole(std::string_view backend, const Format& format) const {
    return std::move(LoadedModel::load(file(format), *find_backend(backend).value()).value());
  }
  std::unique_ptr<LoadedModel> split(const Devices& devices, const Format& format, const StagesOf& stages) const {
    return std::move(LoadedModel::load_split(file(format), devices, stages).value());
  }
  bool can_cut(size_t n_devices) const {
    const std::unique_ptr<LoadedModel> model = whole("reference", k_f32);
    const std::vector<int> cuts = layer_cuts(model->model().graph);
    return cuts.size() >= n_devices;
  }
};

StagesOf over(size_t n_devices) {
  return [n_devices](const Graph& graph) { return layers_over(graph, n_devices); };
}

TEST_P(SplitTest, layers_over_devices_of_one_kind_give_the_same_bits) {
  const std::vector<TokenId> tokens = random_tokens(kTokens, 1);
  const Format& q8_0 = *find_format("q8_0");
  for (const char* backend : {"reference", "cpu"}) {
    const StepLogits expected = run(*whole(backend, q8_0), tokens, kChunk);
    for (const size_t n_devices : {2u, 3u}) {
      if (!can_cut(n_devices)) continue;
      SCOPED_TRACE(fmt::format("{} over {}", backend, n_devices));
      const StepLogits got = run(*split(Devices(n_devices, backend), q8_0, over(n_devices)), tokens, kChunk);
      EXPECT_EQ(got.logits, expected.logits);
      EXPECT_EQ(got.hidden, expected.hidden);
    }
  }
}

TEST_P(SplitTest, layers_over_different_devices_agree_with_the_reference) {
  constexpr double kMaxError = 1e-5;  // as tests/arch_test.cc
  const std::vector<TokenId> tokens = random_tokens(kTokens, 1);
  const StepLogits expected = run(*whole("reference", k_f32), tokens, kTokens);
  for (const Devices& devices : {Devices{"cpu", "reference"}, Devices{"reference", "cpu"}}) {
    const StepLogits got = run(*split(devices, k_f32, over(2)), tokens, kChunk);
    EXPECT_LE(relative_difference(got.logits, expected.logits), kMaxError) << devices[0];
    EXPECT_LE(relative_difference(got.hidden, expected.hidden), kMaxError) << devices[0];
  }
}

// The last device's layers, with their routed experts on the first one.
split::Stages experts_on_first(const Graph& graph) {
  split::Stages stages{.cuts = {}, .devices = {1}};
  for (const ExpertNodes& experts : expert_nodes(graph)) {
    for (const int cut : {experts.begin, experts.end}) {
      stages.cuts.push_back(cut);
      stages.devices.push_back(cut == experts.begin ? 0 : 1);
    }
  }
  return stages;
}

TEST_P(SplitTest, experts_on_another_device_give_the_same_bits) {
  const Format& q8_0 = *find_format("q8_0");
  if (expert_nodes(whole("reference", q8_0)->model().graph).empty()) return;
  const std::vector<TokenId> tokens = random_tokens(kTokens, 1);
  for (const char* backend : {"reference", "cpu"}) {
    const StepLogits expected = run(*whole(backend, q8_0), tokens, kChunk);
    const StepLogits got = run(*split({backend, backend}, q8_0, experts_on_first), tokens, kChunk);
    EXPECT_EQ(got.logits, expected.logits) << backend;
    EXPECT_EQ(got.hidden, expected.hidden) << backend;
  }
}

// Two steps in flight, the second with the tokens that the first one samples.
TEST_P(SplitTest, sampled_tokens_reach_the_first_stage) {
  const Format& q8_0 = *find_format("q8_0");
  const std::vector<TokenId> tokens = random_tokens(9, 2);
  std::vector<TokenId> sampled[2];
  std::vector<float> logits[2];
  for (const bool is_split : {false, true}) {
    const std::unique_ptr<LoadedModel> model = is_split ? split({"cpu", "cpu"}, q8_0, over(2)) : whole("cpu", q8_0);
    StepRunner runner(*model);
    TestSequence sequence = runner.new_sequence(3);
    runner.start({{&sequence, 0, tokens}});
    for (int32_t at = 9; at < 13; ++at) {
      runner.start({{&sequence, at, {kFromDevice}}});
      const StepOutput out = runner.wait();
      sampled[is_split].push_back(out.sampled.back());
      logits[is_split].insert(logits[is_split].end(), out.logits.begin(), out.logits.end());
    }
    sampled[is_split].push_back(runner.wait().sampled.back());
  }
  EXPECT_EQ(sampled[1], sampled[0]);
  EXPECT_EQ(logits[1], logits[0]);
}

// The CPU backend, with a log of its plans' calls, "start 1", and of weights that are copied to it, "load 1".
class LoggedWeights final : public DeviceWeights {
 public:
  LoggedWeights(std::unique_ptr<DeviceWeights> weights, int device, std::vector<std::string>& log)
      : weights_(std::move(weights)), device_(device), log_(log) {}
  size_t device_bytes() const override { return weights_->device_bytes(); }
  Status load(const Graph&) override {
    log_.push_back(fmt::format("load {}", device_));
    return ok_status();
  }
  DeviceWeights& weights() { return *weights_; }

 private:
  std::unique_ptr<DeviceWeights> weights_;
  int device_;
  std::vector<std::string>& log_;
};

class LoggedPlan final : public Plan {
 public:
  LoggedPlan(std::unique_ptr<Plan> plan, std::string name, std::vector<std::string>& log)
      : plan_(std::move(plan)), name_(std::move(name)), log_(log) {}
  size_t device_bytes() const override { return plan_->device_bytes(); }
  void start(const StepInputs& inputs) override {
    log_.push_back(fmt::format("start {} with {}", name_, inputs.tokens.size()));
    plan_->start(inputs);
  }
  Result<StepOutput> wait() override {
    log_.push_back("wait " + name_);
    return plan_->wait();
  }
  std::span<const float> value(Value v) const override { return plan_->value(v); }

 private:
  std::unique_ptr<Plan> plan_;
  std::string name_;
  std::vector<std::string>& log_;
};

class LoggedBackend final : public Backend {
 public:
  LoggedBackend(int device, std::vector<std::string>& log)
      : cpu_(std::move(open_backend("cpu", 1).value())), device_(device), log_(log) {}
  DeviceInfo info() const override { return cpu_->info(); }
  DevicePeaks measure_peaks() override { return cpu_->measure_peaks(); }
  Result<std::unique_ptr<DeviceWeights>> upload(std::span<const Graph* const> graphs,
                                                const ReleaseFilePages& release) override {
    return cpu_->upload(graphs, release);
  }
  Result<std::unique_ptr<DeviceWeights>> stream(std::span<const Graph* const> graphs) override {
    ZINC_TRY(weights, cpu_->upload(graphs, [](auto) {}));
    return std::unique_ptr<DeviceWeights>(std::make_unique<LoggedWeights>(std::move(weights), device_, log_));
  }
  Result<std::unique_ptr<CacheMemory>> allocate_cache(std::span<const LayerCache> layers,
                                                      const CacheSizes& sizes) override {
    return cpu_->allocate_cache(layers, sizes);
  }
  Result<std::unique_ptr<Plan>> compile(const Graph& graph, DeviceWeights& weights, CacheMemory& cache,
                                        const Bucket& bucket) override {
    auto* const streamed = dynamic_cast<LoggedWeights*>(&weights);
    Bucket own_bucket = bucket;
    own_bucket.shares_memory_with = nullptr;  // the other plan is a LoggedPlan
    ZINC_TRY(plan, cpu_->compile(graph, streamed ? streamed->weights() : weights, cache, own_bucket));
    std::string name = fmt::format("{}{}", streamed ? "experts on " : "", device_);
    return std::unique_ptr<Plan>(std::make_unique<LoggedPlan>(std::move(plan), std::move(name), log_));
  }
  std::unique_ptr<Backend> without_memory() override { return cpu_->without_memory(); }

 private:
  std::unique_ptr<Backend> cpu_;
  int device_;
  std::vector<std::string>& log_;
};

TEST_P(SplitTest, the_first_device_runs_the_next_chunk_of_a_prompt_while_the_last_one_runs_this_one) {
  const Format& q8_0 = *find_format("q8_0");
  const std::vector<TokenId> tokens = random_tokens(2 * kChunk, 4);
  const std::vector<TokenId> first(tokens.begin(), tokens.begin() + kChunk),
      second(tokens.begin() + kChunk, tokens.end());
  const auto run_steps = [&](StepRunner& runner) {
    TestSequence prompt = runner.new_sequence(0), other = runner.new_sequence(1);
    std::vector<float> logits;
    const auto wait = [&] {
      const StepOutput out = runner.wait();
      logits.insert(logits.end(), out.logits.begin(), out.logits.end());
    };
    runner.start({{&prompt, 0, first}});
    runner.start({{&prompt, int32_t{kChunk}, second}, {&other, 0, first}});
    wait();
    runner.start({{&prompt, int32_t{2 * kChunk}, {kFromDevice}}});  // sampled by the step in flight
    wait();
    wait();
    return logits;
  };
  const std::unique_ptr<LoadedModel> unsplit = whole("cpu", q8_0);
  StepRunner unsplit_runner(*unsplit);
  const std::vector<float> expected = run_steps(unsplit_runner);
  std::vector<std::string> log;
  const std::unique_ptr<LoadedModel> model =
      std::move(LoadedModel::load_split(
                    file(q8_0), {std::make_shared<LoggedBackend>(0, log), std::make_shared<LoggedBackend>(1, log)},
                    *find_backend("cpu").value(), over(2))
                    .value());
  StepRunner runner(*model);
  EXPECT_EQ(run_steps(runner), expected);
  EXPECT_EQ(log, (std::vector<std::string>{
                     "start 0 with 13", "wait 0", "start 1 with 13",            // the first chunk
                     "start 0 with 26", "wait 0", "start 1 with 26", "wait 1",  // the second one, and another prompt
                     "wait 1", "start 0 with 1", "wait 0", "start 1 with 1", "wait 1"}));  // needs a sampled token
}

TEST_P(SplitTest, experts_of_whole_prompt_chunks_run_on_the_gpu_with_copied_weights) {
  const Format& q8_0 = *find_format("q8_0");
  if (expert_nodes(whole("cpu", q8_0)->model().graph).empty()) return;
  const int n_layers = static_cast<int>(expert_nodes(whole("cpu", q8_0)->model().graph).size());
  const std::vector<TokenId> tokens = random_tokens(kTokens, 1);
  const auto range = [&](int begin, int end) {
    return std::vector<TokenId>(tokens.begin() + begin, tokens.begin() + end);
  };
  const auto run_steps = [&](StepRunner& runner) {
    TestSequence prompt = runner.new_sequence(0), other = runner.new_sequence(1), third = runner.new_sequence(2);
    std::vector<float> logits;
    const auto step = [&](const std::vector<SequenceTokens>& batch) {
      for (const SequenceOutput& output : runner.step(batch)) {
        logits.insert(logits.end(), output.logits.begin(), output.logits.end());
      }
    };
    step({{&other, 0, range(0, 5)}, {&third, 0, range(0, 8)}});                               // 8 rows on the GPU
    step({{&other, 5, range(5, 6)}, {&prompt, 0, range(0, 20)}, {&third, 8, range(8, 16)}});  // 16 and 8 of 29
    step({{&other, 6, range(6, 15)}, {&prompt, 20, range(20, 24)}});                          // none is a whole chunk
    return logits;
  };
  const std::unique_ptr<LoadedModel> unsplit = whole("cpu", q8_0);
  StepRunner unsplit_runner(*unsplit);
  const std::vector<float> expected = run_steps(unsplit_runner);
  std::vector<std::string> log;
  const std::unique_ptr<LoadedModel> model =
      std::move(LoadedModel::load_split(
                    file(q8_0), {std::make_shared<LoggedBackend>(0, log), std::make_shared<LoggedBackend>(1, log)},
                    *find_backend("cpu").value(),
                    [](const Graph& graph) {
                      split::Stages stages = experts_on_first(graph);
                      stages.streamed_tokens = 8;
                      stages.streams_if_faster = false;
                      return stages;
                    })
                    .value());
  EXPECT_EQ(model->weights().prompt_chunk_tokens(), 8);
  StepRunner runner(*model);
  EXPECT_EQ(run_steps(runner), expected);
  const auto count = [&](std::string_view call) { return std::ranges::count(log, call); };
  EXPECT_EQ(count("load 1"), 2 * n_layers);
  EXPECT_EQ(count("start experts on 1 with 8"), n_layers);
  EXPECT_EQ(count("start experts on 1 with 24"), n_layers);
  EXPECT_EQ(count("wait experts on 1"), 2 * n_layers);
  for (const char* on_host : {"start 0 with 5", "start 0 with 13"}) EXPECT_GE(count(on_host), n_layers) << on_host;
}

TEST_P(SplitTest, copied_and_restored_pages_and_states_continue_the_sequence) {
  const Format& q8_0 = *find_format("q8_0");
  const std::vector<TokenId> tokens = random_tokens(24, 3), more = random_tokens(5, 4);
  const std::unique_ptr<LoadedModel> model = split({"cpu", "cpu"}, q8_0, over(2));
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

TEST_P(SplitTest, the_draft_graph_runs_on_the_last_device) {
  const Format& q8_0 = *find_format("q8_0");
  if (!whole("reference", q8_0)->model().draft) return;
  const std::vector<TokenId> tokens = random_tokens(20, 5);
  std::vector<float> logits[2];
  for (const bool is_split : {false, true}) {
    const std::unique_ptr<LoadedModel> model = is_split ? split({"cpu", "cpu"}, q8_0, over(2)) : whole("cpu", q8_0);
    StepRunner runner(*model);
    TestSequence sequence = runner.new_sequence(0);
    const std::vector<float> hidden = runner.step({{&sequence, 0, tokens}})[0].hidden;
    logits[is_split] = runner.draft_step({{&sequence, 0, tokens, hidden}})[0].logits;
  }
  EXPECT_EQ(logits[1], logits[0]);
}

// GPUs: those of this machine, llvmpipe, and the emulated one where it is found.
class GpuSplitTest : public testing::TestWithParam<const BackendInfo*> {
 protected:
  static std::unique_ptr<LoadedModel> split(const Devices& devices, const StagesOf& stages) {
    return std::move(LoadedModel::load_split(file(), devices, stages).value());
  }
  static const std::string& file() {  // of a hybrid model with experts
    static const std::string bytes = make_gguf(with_matrices(tiny_model("qwen35moe"), k_f16));
    return bytes;
  }
  const std::string gpu_ = std::string(GetParam()->name);
  const std::vector<TokenId> tokens_ = random_tokens(12, 1);
};

TEST_P(GpuSplitTest, stages_of_one_gpu_share_the_memory_of_their_activations) {
  const StepLogits expected = run(*LoadedModel::load(file(), *GetParam()).value(), tokens_, 5);
  const StepLogits got = run(*split({"reference", gpu_},
                                    [](const Graph& graph) {
                                      split::Stages stages =
                                          experts_on_first(graph);  // then all but the last on the GPU
                                      std::fill(stages.devices.begin(), stages.devices.end() - 2, size_t{1});
                                      return stages;
                                    }),
                             tokens_, 5);
  EXPECT_LE(relative_difference(got.logits, expected.logits), 1e-5);
}

TEST_P(GpuSplitTest, layers_and_experts_on_the_cpu_agree_with_the_reference) {
  constexpr double kMaxError = 1e-5;
  const std::unique_ptr<LoadedModel> reference =
      std::move(LoadedModel::load(file(), *find_backend("reference").value()).value());
  const StepLogits expected = run(*reference, tokens_, 5);
  const StepLogits layers = run(*split({"cpu", gpu_}, over(2)), tokens_, 5);
  EXPECT_LE(relative_difference(layers.logits, expected.logits), kMaxError);
  const StepLogits experts = run(*split({"cpu", gpu_}, experts_on_first), tokens_, 5);
  EXPECT_LE(relative_difference(experts.logits, expected.logits), kMaxError);
  EXPECT_LE(relative_difference(experts.hidden, expected.hidden), kMaxError);
}

std::vector<const BackendInfo*> gpus() {
  std::vector<const BackendInfo*> all;
  for (const BackendInfo* backend : available_backends()) {
    if (backend->devices) all.push_back(backend);
  }
  return all;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuSplitTest);
INSTANTIATE_TEST_SUITE_P(Gpus, GpuSplitTest, testing::ValuesIn(gpus()), [](const auto& test) {
  std::string name(test.param->name);
  std::ranges::replace(name, ':', '_');
  return name;
});

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const TinyModel& model : tiny_models()) names.push_back(model.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, SplitTest, testing::ValuesIn(model_names()),
                         [](const auto& test) { return model_text(tiny_model(test.param)); });

}  // namespace
}  // namespace zinc
