// Requests that a benchmark submits to its own engine and runs together, on one thread, which is the engine thread.
// Sampling is greedy and end tokens are ignored, so that every request generates as many tokens as it may.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"

namespace zinc {

// An engine in which `max_sequences` requests of `context` tokens fit at the same time, prepared for steps of all
// sizes. By default an engine has less cache if memory is short, and its requests wait.
Result<std::unique_ptr<Engine>> create_bench_engine(ModelInstance model, EngineOptions options);

class BenchRequests {
 public:
  // `cancelled` is polled between steps; it may be empty.
  BenchRequests(Engine& engine, const std::function<bool()>& cancelled) : engine_(engine), cancelled_(cancelled) {}

  Status submit(Request request);  // without a sink
  // Runs steps until `done`. Fails if a request does, if all end before, or if cancelled.
  Status step_until(const std::function<bool()>& done);
  Status step_until_ended() {
    return step_until([this] { return has_ended(); });
  }
  void cancel();  // also ends the step in flight

  int64_t n_tokens() const;                                             // generated, by all
  bool has_tokens(int n) const;                                         // each request
  bool has_ended() const;                                               // each request
  const Usage& usage() const { return sinks_.back()->outcome->usage; }  // of the last request. REQUIRES: has_ended()

 private:
  struct TokenCount : RequestSink {
    void progress(const PromptProgress&) override {}
    void tokens(std::string_view, std::span<const OutputToken> more) override {
      n_tokens += static_cast<int>(more.size());
    }
    void end(const Outcome& what) override { outcome = what; }

    int n_tokens = 0;
    std::optional<Outcome> outcome;
  };

  Engine& engine_;
  const std::function<bool()>& cancelled_;
  std::vector<std::shared_ptr<TokenCount>> sinks_;
  std::vector<RequestId> ids_;
};

}  // namespace zinc
