#include "engine/bench.h"

#include <algorithm>
#include <chrono>

#include "engine/bench_requests.h"

namespace zinc {
namespace {

constexpr int kWarmUpTokens = 8;  // of a decode test

int end_of(const BenchTest& test) { return test.depth + test.n_tokens(); }

Cost operator*(const Cost& cost, double factor) {
  return {.weight_bytes = cost.weight_bytes * factor,
          .activation_read_bytes = cost.activation_read_bytes * factor,
          .activation_written_bytes = cost.activation_written_bytes * factor,
          .cache_read_bytes = cost.cache_read_bytes * factor,
          .cache_written_bytes = cost.cache_written_bytes * factor,
          .flops = cost.flops * factor};
}

}  // namespace

std::array<BenchTest, 2> BenchScenario::tests() const {
  return {BenchTest{.n_prompt = n_prompt, .n_gen = 0, .depth = 0, .scenario = name},
          BenchTest{.n_prompt = 0, .n_gen = n_gen, .depth = n_prompt, .scenario = name}};
}

// At least 512 prompt tokens and 128 generated ones: shorter runs measure the start of a request.
std::span<const BenchScenario> bench_scenarios() {
  static constexpr std::array<BenchScenario, 4> kScenarios = {{
      {"core", "a question and a short answer", 512, 128},
      {"context-medium", "a document of some pages", 2048, 128},
      {"context-long", "a long document", 8192, 128},
      {"decode-extended", "a long answer", 512, 1024},
  }};
  return kScenarios;
}

std::string BenchTest::name() const {
  const std::string base = n_prompt > 0 ? fmt::format("pp{}", n_prompt) : fmt::format("tg{}", n_gen);
  return depth > 0 ? fmt::format("{} @ d{}", base, depth) : base;
}

double Samples::median() const {
  if (values.empty()) return 0;
  std::vector<double> sorted = values;
  std::ranges::sort(sorted);
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

double Samples::spread() const {
  const double middle = median();
  if (middle == 0) return 0;
  return (*std::ranges::max_element(values) - *std::ranges::min_element(values)) / middle;
}

double Samples::quartile_spread() const {
  std::vector<double> sorted = values;
  std::ranges::sort(sorted);
  const double middle = median();
  return middle == 0 ? 0 : (sorted[sorted.size() * 3 / 4] - sorted[sorted.size() / 4]) / middle;
}

Result<ModelBench> ModelBench::prepare(ModelInstance model, std::span<const BenchTest> tests, const TraceOptions& trace,
                                       std::function<bool()> cancelled) {
  int context = 1, deepest = 0;
  for (const BenchTest& test : tests) {
    context = std::max(context, end_of(test));
    deepest = std::max(deepest, test.depth);
  }
  const EngineOptions options{.max_sequences = 1,
                              .context = context,
                              .queue_limit = 1,
                              .speculation = {.mode = SpeculationMode::off},  // every step decodes one token
                              .trace = trace};
  Result<std::unique_ptr<Engine>> engine = create_bench_engine(std::move(model), options);
  if (!engine.ok() && engine.error().code == ErrorCode::out_of_memory) {
    return fail(ErrorCode::out_of_memory,
                "the largest test needs a KV cache of {} tokens, which does not fit in the memory left after loading "
                "the model; use smaller -d, -p or -n",
                context);
  }
  if (!engine.ok()) return engine.error();
  return ModelBench(std::move(engine.value()), deepest, std::move(cancelled));
}

ModelBench::ModelBench(std::unique_ptr<Engine> engine, int deepest, std::function<bool()> cancelled)
    : engine_(std::move(engine)), cancelled_(std::move(cancelled)), prefix_(random_tokens(deepest)) {}

std::vector<TokenId> ModelBench::random_tokens(int n) {
  const auto n_vocab = static_cast<unsigned>(engine_->limits().n_vocab);
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % n_vocab);
  return tokens;
}

// The prefix cache keeps the first tokens of the prefix, and their state.
Status ModelBench::fill_cache(int depth) {
  Request request{.prompt = {prefix_.begin(), prefix_.begin() + depth}};
  request.options.prompt_only = true;
  BenchRequests requests(*engine_, cancelled_);
  if (Status submitted = requests.submit(std::move(request)); !submitted.ok()) return submitted;
  return requests.step_until_ended();
}

// Decoding n tokens computes one token after the prefix, and then each generated one but the last. Another first token
// in every run: the prefix cache has the tokens of earlier runs.
Result<ModelBench::Run> ModelBench::measure(const BenchTest& test) {
  using Clock = std::chrono::steady_clock;
  Request request{.prompt = {prefix_.begin(), prefix_.begin() + test.depth}};
  const std::vector<TokenId> own = random_tokens(std::max(test.n_prompt, 1));
  request.prompt.insert(request.prompt.end(), own.begin(), own.end());
  request.prompt[static_cast<size_t>(test.depth)] =
      static_cast<TokenId>(n_runs_++ % static_cast<uint32_t>(engine_->limits().n_vocab));
  if (test.depth == 0) {
    request.cache_namespace = kSharedNamespace + n_runs_;
    request.cache_share = 0;
  }
  request.options.max_tokens = std::max(test.n_gen, 1);
  BenchRequests requests(*engine_, cancelled_);
  const Clock::time_point start = Clock::now();
  if (Status submitted = requests.submit(std::move(request)); !submitted.ok()) return submitted.error();
  if (Status ended = requests.step_until_ended(); !ended.ok()) return ended.error();
  return Run{std::chrono::duration<double>(Clock::now() - start).count(), requests.usage()};
}

// Where prompts are processed in scan chunks, the prefix cache ends at one: up to a chunk less one token of the prefix
// are part of the measured prefill.
Result<double> ModelBench::tokens_per_s(const BenchTest& test) {
  const int n_cached = test.depth - test.depth % engine_->limits().scan_chunk_tokens;
  ZINC_TRY(run, measure(test));
  if (run.usage.n_cached < n_cached) {  // other tests have evicted the prefix
    if (Status filled = fill_cache(test.depth); !filled.ok()) return filled.error();
    ZINC_TRY(again, measure(test));
    run = again;
  }
  if (run.usage.n_cached != n_cached || run.usage.n_completion != std::max(test.n_gen, 1)) {
    return fail(ErrorCode::unavailable, "{}: {} tokens were generated, after {} cached ones", test.name(),
                run.usage.n_completion, run.usage.n_cached);
  }
  return test.n_tokens() / run.seconds;
}

Status ModelBench::warm_up(const BenchTest& test) {
  BenchTest shorter = test;
  if (test.scenario.empty()) shorter.n_gen = std::min(test.n_gen, kWarmUpTokens);
  if (Status filled = test.depth > 0 ? fill_cache(test.depth) : ok_status(); !filled.ok()) return filled;
  ZINC_TRY(rate, tokens_per_s(shorter));
  return ok_status();
}

// The bytes of a decoded token grow linearly with the depth, except for windows that fill up: the middle one stands for
// all.
Cost ModelBench::cost_per_token(const BenchTest& test) const {
  const ModelInstance& model = engine_->model();
  const Graph& graph = model.model().graph;
  const auto cost_of = [&](int n_tokens, int depth) {
    return cost_graph(graph, {.n_tokens = n_tokens, .depth = depth, .kv_format = &model.kv_format()}, {}).total;
  };
  if (test.n_prompt == 0) return cost_of(1, test.depth + test.n_gen / 2);
  Cost total;
  const int step = model.backend_info().step_tokens;
  for (int done = 0; done < test.n_prompt; done += step) {
    total += cost_of(std::min(step, test.n_prompt - done), test.depth + done);
  }
  return total * (1.0 / test.n_prompt);
}

}  // namespace zinc
