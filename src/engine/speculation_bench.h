// Measures decoding with drafts against plain decoding in one engine, in turns. Drafted tokens are those of the plain
// run, each one right with a chosen probability, so that the speedup is known for any acceptance without a text that
// has it; the drafter itself runs, too, so that its time counts. One thread, which is the engine thread.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/forced_drafter.h"

namespace zinc {

struct SpeculationTest {
  int n_prompt = 0, n_gen = 0;  // tokens of each sequence, at least 1
  int n_sequences = 1;          // decoded together
  double acceptance = 0;        // of a drafted token

  std::string name() const;  // "pp128 tg256 b1 a0.8"
};

struct SpeculationTimes {
  double plain_s = 0, drafted_s = 0;  // from the first token of the last sequence until all have ended
  uint64_t n_drafted = 0, n_accepted = 0;
  double speedup() const { return plain_s / drafted_s; }
};

class SpeculationBench {
 public:
  // `speculation`: the drafter whose time is measured; without one that runs a model drafts cost no time (prompt
  // lookup). `cancelled` is polled between steps; if it returns true, a run fails with ErrorCode::cancelled.
  static Result<SpeculationBench> prepare(ModelInstance model, std::span<const SpeculationTest> tests,
                                          SpeculationOptions speculation, std::function<bool()> cancelled = {});

  // One plain and one drafted run of the same prompts. Fails if their outputs differ.
  Result<SpeculationTimes> measure(const SpeculationTest& test);

  const Engine& engine() const { return *engine_; }

 private:
  struct Run {
    double seconds = 0;
    std::vector<std::vector<TokenId>> sequences = {};  // prompt and output
  };
  SpeculationBench(std::unique_ptr<Engine> engine, std::shared_ptr<ForcedDrafts> drafts,
                   std::function<bool()> cancelled)
      : engine_(std::move(engine)), drafts_(std::move(drafts)), cancelled_(std::move(cancelled)) {}
  Result<Run> run(const SpeculationTest& test, std::span<const std::vector<TokenId>> prompts,
                  std::optional<SpeculationMode> mode);

  std::unique_ptr<Engine> engine_;
  std::shared_ptr<ForcedDrafts> drafts_;
  std::function<bool()> cancelled_;
  std::minstd_rand random_;
};

}  // namespace zinc
