// Serves many requests from one model: continuous batching over KV pages shared through a prefix tree. One thread, the
// engine thread, calls step() or run() and owns device, cache and scheduler; submit(), cancel(), stats() and drain()
// may be called from any thread and never wait for a step. Memory is reserved when a request is admitted: once it
// runs, only a lost device can fail it. Every submitted request's sink gets exactly one end().
#pragma once

#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "engine/engine_stats.h"
#include "engine/model_instance.h"
#include "engine/request.h"
#include "text/tokenizer.h"

namespace zinc {

struct EngineOptions {
  int max_sequences = 16;    // requests that run at once
  int context = 0;           // positions per request; 0: as many as the model was trained for and memory holds
  int step_tokens = 0;       // prompt tokens per step at most; 0: as many as suit the backend
  size_t cache_bytes = 0;    // KV pages and recurrent states; 0: what max_sequences times context need, at most half of
                             // the memory the model leaves
  int queue_limit = 256;     // requests that wait
  double longest_gap = 1.8;  // how many plain decode steps a step that also reads long prompts may take
  std::filesystem::path cache_file = {};  // where the prefix tree is taken from, and saved to; empty: nowhere
  int state_interval = 2048;              // tokens between recurrent-state checkpoints, beside those at boundaries
};

// What a model and its options came to; constant.
struct EngineLimits {
  int context = 0, max_sequences = 0, queue_limit = 0, n_vocab = 0;
  int embedding_dim = 0;
  size_t weight_bytes = 0, cache_bytes = 0;
  std::string cache_note = {};  // why a cache file that is there was not taken; empty: it was, or there is none
};

class EngineLoop;
class KvCache;
class Inbox;

class Engine {
 public:
  // Fails if the options do not fit memory, and names what would.
  static Result<std::unique_ptr<Engine>> create(ModelInstance model, EngineOptions options);
  ~Engine();  // ends every request that is left as cancelled. REQUIRES: nobody is in step() or run()

  const ModelInstance& model() const { return model_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  const EngineLimits& limits() const { return limits_; }

  // Any thread. Errors, all at once and before anything ran; the sink is not called then:
  //   invalid_input    an empty prompt, a token or sampling parameter out of range
  //   context_exceeded the prompt is longer than the context; the message names both numbers
  //   unavailable      the queue is full, or the engine drains: try again later
  // An answer that would pass the end of the context ends there (StopReason::context_full).
  Result<RequestId> submit(Request request);
  // Any thread; also for requests that are over or never were. Takes effect before the next step.
  void cancel(RequestId id);
  // Any thread. No more requests are taken; those there are finish.
  void drain();
  bool drained() const;       // any thread: draining, and nothing is left
  EngineStats stats() const;  // any thread: as of the last step

  // Engine thread. One step; false when there was nothing to do.
  bool step();
  // Engine thread. step() until stopped; sleeps when idle.
  void run(std::stop_token stop);
  // Engine thread. Writes what the prefix tree has to EngineOptions::cache_file, whole or not at all. REQUIRES: there
  // is such a file.
  Status save_cache();

 private:
  Engine(ModelInstance model, Tokenizer tokenizer);
  // Begins with the cache of an earlier engine. What comes back says why not; a file that cannot be used is no reason
  // not to serve.
  std::string take_cache(KvCache& cache);

  ModelInstance model_;
  Tokenizer tokenizer_;
  EngineLimits limits_;
  std::filesystem::path cache_file_;
  Result<Sha256::Digest> cache_key_;  // of the model as it was loaded; the file may be replaced while it is served
  std::unique_ptr<Inbox> inbox_;
  std::unique_ptr<EngineLoop> loop_;
};

}  // namespace zinc
