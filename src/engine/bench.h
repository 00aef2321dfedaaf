// Measures a model's speed: prefill, decode, and both at some depth of the KV cache. Tokens are random: speed does not
// depend on them. One thread.
#pragma once

#include <array>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/sequence.h"
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
  // Creates a sequence large enough for every test and fills it to the largest depth. The model must outlive it.
  // `cancelled` is polled between steps; if it returns true, a run fails with ErrorCode::cancelled.
  static Result<ModelBench> prepare(const ModelInstance& model, std::span<const BenchTest> tests,
                                    const TraceOptions& trace = {}, std::function<bool()> cancelled = {});

  // One run; only the test's own tokens are timed. Fails if fewer tokens were computed than the test has. REQUIRES: a
  // test passed to prepare().
  Result<double> tokens_per_s(const BenchTest& test);
  // A run that is not measured: fills caches and raises the clock. Shorter than the test, except in a scenario.
  Status warm_up(const BenchTest& test);

  const Sequence& sequence() const { return sequence_; }
  // Per token: bytes of weights and KV cache that must be read and written, FLOPs.
  Cost cost_per_token(const BenchTest& test) const;

 private:
  ModelBench(const ModelInstance& model, Sequence sequence, std::function<bool()> cancelled)
      : model_(&model), sequence_(std::move(sequence)), cancelled_(std::move(cancelled)) {}
  std::vector<TokenId> random_tokens(int n);

  const ModelInstance* model_;
  Sequence sequence_;
  std::function<bool()> cancelled_;
  std::minstd_rand random_;
};

}  // namespace zinc
