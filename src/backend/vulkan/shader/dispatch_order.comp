// Tests whether a device starts the workgroups of consecutive dispatches in order, as counter_sync.glsl assumes. Workgroups of
// each dispatch poll the counter of the previous dispatch, with a bound. A workgroup that reaches the bound sets `failed`, and
// all others stop waiting.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/device_tests.h"

layout(constant_id = kSpecDispatchOrderSharedWords) const int kSharedWords = 256;  // shared memory per workgroup: varies the occupancy between dispatches
const int kMaxPolls = 1 << 20;  // polls of about a microsecond each on a large GPU

layout(set = 0, binding = 0, scalar) uniform Block { DispatchOrderParams p; };

shared uint shared_words[kSharedWords];

void main() {
  shared_words[kSharedWords - kThreads + thread_id()] = Counter(p.failed).count;
  barrier();
  if (thread_id() != 0) return;
  uint failed = shared_words[kSharedWords - 1];
  for (int i = 0; failed == 0u && Counter(p.producer_counter).count < uint(p.n_producers); ++i) {
    failed = i < kMaxPolls ? Counter(p.failed).count : 1u;
  }
  if (failed != 0u) Counter(p.failed).count = 1u;
  atomicAdd(Counter(p.own_counter).count, 1u);
}
