// A graph compiled for all steps up to one size. A plan takes all its memory when it is compiled. start() replays what
// was prepared: it allocates, compiles and records nothing. A backend may still prepare step sizes on a thread of its
// own when compile() returns; until then their steps run what was prepared for larger ones, with the same results.
// Exceptions: Vulkan on a CPU prepares a step size when a step first needs it, and the reference interpreter allocates.
// Used only by the thread that owns the backend.
#pragma once

#include <chrono>
#include <limits>
#include <span>
#include <string_view>

#include "backend/step.h"
#include "base/result.h"
#include "graph/graph.h"

namespace zinc {

inline constexpr int kAnySeqTokens = std::numeric_limits<int>::max();

class Plan;

struct Bucket {
  int max_tokens = 1, max_seqs = 1, max_outputs = 1;
  int max_seq_tokens = kAnySeqTokens;  // of one sequence in a step
  int n_rope_scalings = 1;             // StepInputs::rope_scalings are below it
  int min_class_tokens = 1;            // no step classes of fewer tokens: for tests, costs time
  bool keep_values = false;            // Plan::value can read every value: for tests and tools, costs memory
  bool time_kernels = false;           // Plan::kernel_times: for traces and tools, launches kernels one by one
  // A plan of the same backend and cache, for its activations' memory: steps of both never overlap. nullptr: none.
  const Plan* shares_memory_with = nullptr;
};

// When a kernel of a step ran. GPU times are the device's own, placed on the host's clock.
struct KernelTime {
  using Time = std::chrono::steady_clock::time_point;
  std::string_view name;           // of the kernel, or of the op
  std::span<const int32_t> nodes;  // of the graph, that it computes; empty: none, such as a copy
  Time begin, end;
};

class Plan {
 public:
  virtual ~Plan() = default;
  virtual size_t device_bytes() const = 0;  // its memory: activations, workspaces, tables, inputs and outputs
  virtual size_t device_bytes_on(size_t) const { return device_bytes(); }  // of one of Backend::devices()
  // Starts a step; at most two may be in flight. REQUIRES: the inputs fit the bucket and the cache.
  virtual void start(const StepInputs& inputs) = 0;
  // Waits for the oldest step in flight. REQUIRES: a step is in flight.
  virtual Result<StepOutput> wait() = 0;
  // A value of the last finished step, row-major. REQUIRES: Bucket::keep_values, and v is an f32 activation.
  virtual std::span<const float> value(Value v) const = 0;
  // The kernels of the last finished step in order of execution; empty: unknown. Names and nodes are valid as long as
  // the plan, the times until the next wait(). REQUIRES: Bucket::time_kernels.
  virtual std::span<const KernelTime> kernel_times() const { return {}; }
  // Waits until all step sizes that are prepared in the background are: for measurements.
  virtual Status wait_until_prepared() { return ok_status(); }
};

}  // namespace zinc
