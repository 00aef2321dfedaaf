// Whether a device starts the workgroups of dispatches in their order, which chain.glsl takes for granted: those of a link wait
// until all of the link before have counted themselves, but not for ever. One that waits in vain says so, and then nobody waits
// any more.
#version 460
#include "memory.glsl"

layout(constant_id = 1) const int kRoom = 256;  // words of shared memory a workgroup takes: links differ in how many fit at once
const int kLongestWait = 1 << 20;               // looks at the counters, each of about a microsecond on a large card

struct Params {
  uint64_t before, own, failed;  // counters
  int n_before, unused;          // 0: the first link
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

shared uint room[kRoom];

void main() {
  room[kRoom - kThreads + thread_id()] = Counter(p.failed).count;
  barrier();
  if (thread_id() != 0) return;
  uint failed = room[kRoom - 1];
  for (int i = 0; failed == 0u && Counter(p.before).count < uint(p.n_before); ++i) {
    failed = i < kLongestWait ? Counter(p.failed).count : 1u;
  }
  if (failed != 0u) Counter(p.failed).count = 1u;
  atomicAdd(Counter(p.own).count, 1u);
}
