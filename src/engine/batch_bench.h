// Measures sequences that the serving engine prefills and decodes together, as llama-batched-bench does: first all
// prompts, then all sequences with one token each per step. Prompts are random, and no sequence shares another one's
// prefix. One thread, which is the engine thread.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace zinc {

struct BatchTest {
  int n_prompt = 0, n_gen = 0;  // tokens of each sequence, at least 1
  int n_sequences = 0;

  int64_t n_prompt_total() const { return int64_t{n_prompt} * n_sequences; }
  int64_t n_gen_total() const { return int64_t{n_gen} * n_sequences; }
  int64_t n_kv() const { return n_prompt_total() + n_gen_total(); }  // tokens in the KV cache at the end
  std::string name() const;                                          // "pp512 tg128 b64"
};

struct BatchTimes {
  double prefill_s = 0, decode_s = 0;
};

class BatchBench {
 public:
  // Creates an engine in which the sequences of every test fit at the same time. `cancelled` is polled between steps;
  // if it returns true, a run fails with ErrorCode::cancelled.
  static Result<BatchBench> prepare(ModelInstance model, std::span<const BatchTest> tests,
                                    const TraceOptions& trace = {}, std::function<bool()> cancelled = {});

  // One run. Prefill: from the submission of all prompts until each has its first token; no sequence decodes meanwhile.
  // Decode: the n_gen steps after that token, each with one token of every sequence. Between the two the prompts are
  // submitted again and taken from the prefix cache, which is not timed. Fails if not exactly the test's tokens were
  // computed. REQUIRES: a test passed to prepare().
  Result<BatchTimes> measure(const BatchTest& test);
  // A run with few generated tokens that is not measured: fills caches and raises the clock.
  Status warm_up(const BatchTest& test);

  const Engine& engine() const { return *engine_; }

 private:
  BatchBench(std::unique_ptr<Engine> engine, int max_lead, std::function<bool()> cancelled)
      : engine_(std::move(engine)), max_lead_(max_lead), cancelled_(std::move(cancelled)) {}
  Result<double> prefill_s(const BatchTest& test, std::span<const std::vector<TokenId>> prompts);
  Result<double> decode_s(const BatchTest& test, std::span<const std::vector<TokenId>> prompts);

  std::unique_ptr<Engine> engine_;
  int max_lead_;  // tokens that a sequence may generate before the last one has its first
  std::function<bool()> cancelled_;
  std::minstd_rand random_;
};

}  // namespace zinc
