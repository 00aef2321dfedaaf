// What both passes of sampling share. Tokens are ordered by a 64-bit key: higher logit first, then lower id. Logits are compared
// as integers: a device may flush denormals to zero and need not handle NaN.
#include "backend/vulkan/params/sample.h"
#include "reduce.glsl"

const uint kLowestKey = 0x00800000u;   // of the lowest float; -infinity and NaN are below and are never sampled
const uint kHighestKey = 0xFF7FFFFFu;  // of the largest float

layout(set = 0, binding = 0, scalar) uniform Block { SampleParams p; };

// Larger for larger logits; both zeros are equal. Of a float's bits.
uint logit_key(uint bits) {
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return 0u;  // NaN
  if (bits == 0x80000000u) bits = 0u;
  return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
uint64_t sort_key(uint key, int id) { return packUint2x32(uvec2(~uint(id), key)); }
uint key_of(uint64_t sort_key) { return unpackUint2x32(sort_key).y; }
int id_of(uint64_t sort_key) { return int(~unpackUint2x32(sort_key).x); }

int n_chunks() { return (p.vocab + kSampleChunk - 1) / kSampleChunk; }
uint64_t logits_of(int row) { return p.logits + uint64_t(row) * uint64_t(p.vocab) * 4ul; }

int sampling_field(int row, int field) { return Ints(step.sampling).data[row * kSamplingInts + field]; }
// Not greedy.
bool is_sampled(int row) { return row < step_count(kSampledRows) && sampling_field(row, kInvTemperature) != 0; }

CLUSTERED_REDUCE(clustered_max_uint, uint, uint, uint, max)

uint64_t shuffle_xor(uint64_t x, int step) { return packUint2x32(subgroupShuffleXor(unpackUint2x32(x), uint(step))); }

shared uint64_t subgroup_results[kThreads / 4];

// Maximum over the workgroup. REQUIRES: every thread of the workgroup calls.
uint64_t workgroup_max(uint64_t x) {
  for (int step = 1; step < kSubgroup; step *= 2) x = max(x, shuffle_xor(x, step));
  if (thread_id() % kSubgroup == 0) subgroup_results[thread_id() / kSubgroup] = x;
  barrier();
  for (int s = 0; s < kThreads / kSubgroup; ++s) x = max(x, subgroup_results[s]);
  barrier();
  return x;
}
