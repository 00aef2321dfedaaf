// Measures the kernels of a model's steps one by one: time, and bytes of weights and KV cache that each has to read.
// The kernels run as parts of whole steps, so that each call reads the weights of another layer, from memory and not
// from a cache (if the model is larger than the caches).
#pragma once

#include <functional>

#include "engine/bench.h"

namespace zinc {

struct KernelBenchOptions {
  int n_tokens = 1;  // rows of the step: 1 is decode
  int depth = 0;     // tokens in the KV cache before them
  int n_warm_up = 25, n_steps = 200;
  std::function<bool()> cancelled = {};
};

// The calls of one kernel with weights of the same format and shape.
struct KernelFigures {
  std::string name;               // "linear q8_0 1024x3072"
  int n_calls = 0;                // per step
  double bytes_per_call = 0;      // weights and KV cache; 0: it reads only activations
  Samples seconds_per_call = {};  // one for each step
  double step_share = 0;          // of the time of all kernels
};

struct KernelBenchResult {
  std::vector<KernelFigures> kernels;  // longest share first
  Samples step_seconds = {};           // from the first kernel's start to the last one's end
};

// Fails if the backend does not time its kernels.
Result<KernelBenchResult> measure_kernels(const ModelInstance& model, const KernelBenchOptions& options);

}  // namespace zinc
