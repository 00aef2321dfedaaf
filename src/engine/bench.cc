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

Result<ModelBench> ModelBench::prepare(const ModelInstance& model, std::span<const BenchTest> tests) {
  int context = 1, deepest = 0, largest_chunk = 1;
  for (const BenchTest& test : tests) {
    context = std::max(context, end_of(test));
    deepest = std::max(deepest, test.depth);
    largest_chunk = std::max({largest_chunk, test.n_prompt, test.depth});
  }
  ZINC_TRY(backend, find_backend(model.backend_name()));
  const SequenceOptions options{.context = context, .chunk_tokens = std::min(largest_chunk, backend->step_tokens)};
  Result<Sequence> sequence = Sequence::create(model, options);
  if (!sequence.ok() && sequence.error().code == ErrorCode::out_of_memory) {
    return fail(ErrorCode::out_of_memory,
                "the largest test needs {} positions of KV cache, which do not fit in the memory left after loading "
                "the model; use "
                "smaller -d, -p or -n",
                context);
  }
  if (!sequence.ok()) return sequence.error();
  ModelBench bench(model, std::move(sequence.value()));
  if (deepest > 0) {
    ZINC_TRY(logits, bench.sequence_.feed(bench.random_tokens(deepest)));
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
  ZINC_TRY(logits, sequence_.feed(std::span(tokens).first(test.n_prompt > 0 ? tokens.size() : 1)));
  if (test.n_gen > 1) {
    if (Status s = sequence_.decode_on_device(test.n_gen, [](TokenId) { return true; }); !s.ok()) return s.error();
  }
  return test.n_tokens() / std::chrono::duration<double>(Clock::now() - start).count();
}

Status ModelBench::warm_up(const BenchTest& test) {
  BenchTest shorter = test;
  shorter.n_gen = std::min(test.n_gen, kWarmUpTokens);
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
