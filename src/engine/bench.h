// Measures a model's speed: prefill, decode, and both at some depth of the KV cache. Tokens are random: speed does not
// depend on them. One thread.
#pragma once

#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/sequence.h"
#include "graph/cost.h"

namespace zinc {

// Prefills n_prompt tokens in large steps or decodes n_gen tokens one by one, after `depth` others. One of the two is
// 0.
struct BenchTest {
  int n_prompt = 0, n_gen = 0, depth = 0;

  int n_tokens() const { return n_prompt + n_gen; }
  std::string name() const;  // "pp512", "tg128 @ d4096"
};

// Repeated measurements.
struct Samples {
  std::vector<double> values;

  double median() const;  // 0 if there are none
  double spread() const;  // (largest - smallest) / median
};

class ModelBench {
 public:
  // Creates a sequence large enough for every test and fills it to the largest depth. The model must outlive it.
  static Result<ModelBench> prepare(const ModelInstance& model, std::span<const BenchTest> tests);

  // One run; only the test's own tokens are timed. REQUIRES: a test passed to prepare().
  Result<double> tokens_per_s(const BenchTest& test);
  // An untimed run, shorter if that is enough: fills caches and raises the processor's clock.
  Status warm_up(const BenchTest& test);

  const Sequence& sequence() const { return sequence_; }
  // Per token: bytes of weights and KV cache that must be read and written, FLOPs.
  Cost cost_per_token(const BenchTest& test) const;

 private:
  ModelBench(const ModelInstance& model, Sequence sequence) : model_(&model), sequence_(std::move(sequence)) {}
  std::vector<TokenId> random_tokens(int n);

  const ModelInstance* model_;
  Sequence sequence_;
  std::minstd_rand random_;
};

}  // namespace zinc
