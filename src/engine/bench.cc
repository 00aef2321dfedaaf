#include "engine/bench.h"

#include <algorithm>
#include <chrono>

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

Result<ModelBench> ModelBench::prepare(const ModelInstance& model, std::span<const BenchTest> tests,
                                       const TraceOptions& trace, std::function<bool()> cancelled) {
  int context = 1, deepest = 0, largest_chunk = 1;
  for (const BenchTest& test : tests) {
    context = std::max(context, end_of(test));
    deepest = std::max(deepest, test.depth);
    largest_chunk = std::max({largest_chunk, test.n_prompt, test.depth});
  }
  ZINC_TRY(backend, find_backend(model.backend_name()));
  const SequenceOptions options{
      .context = context, .chunk_tokens = std::min(largest_chunk, backend->step_tokens), .trace = trace};
  Result<Sequence> sequence = Sequence::create(model, options);
  if (!sequence.ok() && sequence.error().code == ErrorCode::out_of_memory) {
    return fail(ErrorCode::out_of_memory,
                "the largest test needs a KV cache of {} tokens, which does not fit in the memory left after loading "
                "the model; use smaller -d, -p or -n",
                context);
  }
  if (!sequence.ok()) return sequence.error();
  if (Status s = sequence.value().wait_until_prepared(); !s.ok()) return s.error();
  ModelBench bench(model, std::move(sequence.value()), std::move(cancelled));
  if (deepest > 0) {
    ZINC_TRY(logits, bench.sequence_.feed(bench.random_tokens(deepest), bench.cancelled_));
  }
  return bench;
}

std::vector<TokenId> ModelBench::random_tokens(int n) {
  const auto n_vocab = static_cast<unsigned>(model_->model().config.vocab_size);
  std::vector<TokenId> tokens(static_cast<size_t>(n));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % n_vocab);
  return tokens;
}

// Positions below the depth hold random tokens of this run or an earlier one: it does not matter which.
Result<double> ModelBench::tokens_per_s(const BenchTest& test) {
  using Clock = std::chrono::steady_clock;
  const std::vector<TokenId> tokens = random_tokens(test.n_tokens());
  sequence_.move_to(test.depth);
  const Clock::time_point start = Clock::now();
  // Decoding n tokens feeds one token and then each sampled one.
  ZINC_TRY(logits, sequence_.feed(std::span(tokens).first(test.n_prompt > 0 ? tokens.size() : 1), cancelled_));
  int n_made = 0;
  const auto take = [&](TokenId) {
    ++n_made;
    return !cancelled_ || !cancelled_();
  };
  if (Status s = sequence_.decode_on_device(test.n_gen, take); !s.ok()) return s.error();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (cancelled_ && cancelled_()) return fail(ErrorCode::cancelled, "interrupted");
  const int n_fed = sequence_.position() - test.depth;
  if (n_made != test.n_gen || n_fed != test.n_tokens()) {
    return fail(ErrorCode::unavailable, "{}: {} tokens were generated instead of {}, and {} computed instead of {}",
                test.name(), n_made, test.n_gen, n_fed, test.n_tokens());
  }
  return test.n_tokens() / seconds;
}

Status ModelBench::warm_up(const BenchTest& test) {
  BenchTest shorter = test;
  if (test.scenario.empty()) shorter.n_gen = std::min(test.n_gen, kWarmUpTokens);
  ZINC_TRY(rate, tokens_per_s(shorter));
  return ok_status();
}

// The bytes of a decoded token grow linearly with the depth, except for windows that fill up: the middle one stands for
// all.
Cost ModelBench::cost_per_token(const BenchTest& test) const {
  const Graph& graph = model_->model().graph;
  const auto cost_of = [&](int n_tokens, int depth) {
    return cost_graph(graph, {.n_tokens = n_tokens, .depth = depth, .kv_format = &model_->kv_format()}, {}).total;
  };
  if (test.n_prompt == 0) return cost_of(1, test.depth + test.n_gen / 2);
  Cost total;
  const Result<const BackendInfo*> backend = find_backend(model_->backend_name());
  const int step = backend.ok() ? backend.value()->step_tokens : test.n_prompt;
  for (int done = 0; done < test.n_prompt; done += step) {
    total += cost_of(std::min(step, test.n_prompt - done), test.depth + done);
  }
  return total * (1.0 / test.n_prompt);
}

}  // namespace zinc
