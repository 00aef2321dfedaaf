// Measures a model's speed with one request at a time to the serving engine: prefill, decode, and both at some depth of
// the KV cache, which the prefix cache keeps. Tokens are random: speed does not depend on them. One thread, which is
// the engine thread.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "graph/cost.h"

namespace zinc {

// Prefills n_prompt tokens in large steps or decodes n_gen tokens one by one, after `depth` others. One of the two is
// 0.
struct BenchTest {
  int n_prompt = 0, n_gen = 0, depth = 0;
  std::string_view scenario = {};  // that it belongs to; empty: none

  int n_tokens() const { return n_prompt + n_gen; }
  std::string name() const;  // "pp512", "tg128 @ d4096"
};

// A named workload: one request with a prompt and an answer of these lengths, measured as two tests. The same names and
// lengths everywhere, so that figures of different machines and days can be compared.
struct BenchScenario {
  std::string_view name, summary;
  int n_prompt, n_gen;

  std::array<BenchTest, 2> tests() const;  // prefill, then decode after the prompt
};
std::span<const BenchScenario> bench_scenarios();

// Repeated measurements.
struct Samples {
  std::vector<double> values;

  double median() const;           // 0 if there are none
  double spread() const;           // (largest - smallest) / median
  double quartile_spread() const;  // the same of the middle half: for many short measurements, which others interrupt
};

class ModelBench {
 public:
  // Creates an engine with a context large enough for every test. `cancelled` is polled between steps; if it returns
  // true, a run fails with ErrorCode::cancelled.
  static Result<ModelBench> prepare(ModelInstance model, std::span<const BenchTest> tests,
                                    const TraceOptions& trace = {}, std::function<bool()> cancelled = {});

  // One run; only the test's own tokens are timed. Fails if not exactly these were computed. REQUIRES: a test passed to
  // prepare().
  Result<double> tokens_per_s(const BenchTest& test);
  // A run that is not measured: fills caches and raises the clock. Shorter than the test, except in a scenario.
  Status warm_up(const BenchTest& test);

  const Engine& engine() const { return *engine_; }
  // Per token: bytes of weights and KV cache that must be read and written, FLOPs.
  Cost cost_per_token(const BenchTest& test) const;

 private:
  struct Run {
    double seconds = 0;
    Usage usage;
  };
  ModelBench(std::unique_ptr<Engine> engine, int deepest, std::function<bool()> cancelled);
  std::vector<TokenId> random_tokens(int n);
  Status fill_cache(int depth);
  Result<Run> measure(const BenchTest& test);

  std::unique_ptr<Engine> engine_;
  std::function<bool()> cancelled_;
  std::minstd_rand random_;
  std::vector<TokenId> prefix_;  // before the tokens of every test, as many as its depth
  uint32_t n_runs_ = 0;
};

}  // namespace zinc
