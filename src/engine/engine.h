// Serves many requests with one model: continuous batching over KV pages shared through a prefix cache. One thread, the
// engine thread, calls step() or run() and owns device, cache and scheduler; submit(), cancel(), stats() and drain()
// may be called from any thread and never wait for a step. A request is admitted when the pages of its prompt fit. If
// pages run out later, the youngest request is preempted and resumed when they fit again, with the output of a prefix
// cache hit (docs/serving.md, "Reproducibility"): memory fails no submitted request, only a lost device can. Every
// submitted request's sink gets exactly one end().
#pragma once

#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "engine/engine_stats.h"
#include "engine/model_memory.h"
#include "engine/request.h"
#include "engine/step_trace.h"
#include "text/tokenizer.h"

namespace zinc {

struct EngineOptions {
  int max_sequences = 16;  // requests that run at the same time, at most
  // Positions per request; 0: the model's training context, or less if memory is short. In a larger one, requests that
  // need more than the training context have an extended one (graph/rope.h), up to longest_context().
  int context = 0;
  int step_tokens = 0;     // prompt tokens per step, at most; 0: the backend's default
  size_t cache_bytes = 0;  // KV pages and recurrent states; 0: max_sequences times context, at most half of the memory
                           // that the model leaves
  int queue_limit = 256;   // waiting requests, at most
  // Longest step with prefill of long prompts, as a multiple of a decode-only step, as far as prefill keeps half its
  // speed (PrefillBudget).
  double max_decode_slowdown = 1.8;
  std::filesystem::path cache_file = {};  // the prefix cache is loaded from and saved to this file; empty: none
  SpeculationOptions speculation = {};
  int checkpoint_interval = 2048;  // tokens between recurrent-state checkpoints, in addition to those at boundaries
  TraceOptions trace = {};
};

// Limits that result from the model and the options; constant.
struct EngineLimits {
  int context = 0, max_sequences = 0, queue_limit = 0, n_vocab = 0;
  int embedding_dim = 0;
  size_t weight_bytes = 0, cache_bytes = 0, activation_bytes = 0;
  int scan_chunk_tokens = 1;              // ModelInstance::scan_chunk_tokens() of its steps
  std::vector<ModelMemory> devices = {};  // of each device of the model
  std::vector<int> rope_contexts = {};    // positions by RoPE scaling; the last one is `context`
  SpeculationMode speculation = SpeculationMode::automatic;
  std::string cache_load_error = {};  // why an existing cache file was not loaded; empty: no error
};

class EngineLoop;
class KvCache;
class SubmissionQueue;

class Engine {
 public:
  // Uploads the model if it is not yet. Fails before that if the options do not fit memory; the error names values that
  // would.
  static Result<std::unique_ptr<Engine>> create(ModelInstance model, EngineOptions options);
  ~Engine();  // ends the remaining requests as cancelled. REQUIRES: no thread is in step() or run()

  const ModelInstance& model() const { return model_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const EngineLimits& limits() const { return limits_; }

  // Any thread. Errors are returned at once, before anything runs; the sink is not called then:
  //   invalid_input    an empty prompt, a token or sampling parameter out of range
  //   context_exceeded the prompt is longer than the context; the message names both numbers
  //   unavailable      the queue is full, or the engine is draining: try again later
  // An output that reaches the end of the context ends there (StopReason::context_full). If the context is extended,
  // that is the context of the request's own RoPE scaling, which is chosen by what it may need: docs/serving.md.
  Result<RequestId> submit(Request request);
  // Any thread; no effect if the request has ended or never existed. Takes effect before the next step.
  void cancel(RequestId id);
  // Any thread. Accepts no more requests; running and waiting ones finish.
  void drain();
  bool drained() const;       // any thread: draining, and every request has ended
  EngineStats stats() const;  // any thread: as of the last step

  // Engine thread. Waits until the plan is prepared for steps of all sizes, before a measurement.
  Status wait_until_prepared();
  // Engine thread. One step; false: nothing to do.
  bool step();
  // Engine thread. step() until stopped; sleeps when idle.
  void run(std::stop_token stop);
  // Engine thread. Writes the prefix cache to EngineOptions::cache_file, atomically. REQUIRES: a cache file is set.
  Status save_cache();

 private:
  Engine(ModelInstance model, Tokenizer tokenizer);
  // Loads the prefix cache of an earlier engine. Returns why it could not be loaded; an unusable file is not an error.
  std::string load_prefix_cache(KvCache& cache);

  ModelInstance model_;
  Tokenizer tokenizer_;
  EngineLimits limits_;
  std::filesystem::path cache_file_;
  Result<Sha256::Digest> cache_key_;  // of the model as it was loaded; its file may be replaced while it is served
  std::unique_ptr<SubmissionQueue> submission_queue_;
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace zinc
