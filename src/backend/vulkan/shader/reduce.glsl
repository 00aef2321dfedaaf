// Clustered reductions over 4 to 32 consecutive threads for any subgroup size: shuffles within a subgroup, shared memory beyond.
// Every lane gets the same bits. REQUIRES: every thread of the workgroup calls.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(constant_id = kSpecSubgroupSize) const int kSubgroup = 32;

shared uint exchange[kThreads];

uint exchange_part(uint x, int k, int width) {
  return exchange[((thread_id() & ~(width - 1)) + k * kSubgroup) | (thread_id() & (kSubgroup - 1))];
}

#define CLUSTERED_REDUCE(name, type, to_bits, from_bits, combine)                  \
  type name(type x, int width) {                                                   \
    for (int step = min(width, kSubgroup) / 2; step > 0; step /= 2) {              \
      precise type other = subgroupShuffleXor(x, step);                            \
      precise type both = combine(x, other);                                       \
      x = both;                                                                    \
    }                                                                              \
    if (width > kSubgroup) {                                                       \
      exchange[thread_id()] = to_bits(x);                                          \
      barrier();                                                                   \
      type all = from_bits(exchange_part(0u, 0, width));                           \
      for (int k = 1; k < width / kSubgroup; ++k) {                                \
        precise type both = combine(all, from_bits(exchange_part(0u, k, width)));  \
        all = both;                                                                \
      }                                                                            \
      barrier();                                                                   \
      x = all;                                                                     \
    }                                                                              \
    return x;                                                                      \
  }
#define PLUS(a, b) ((a) + (b))

CLUSTERED_REDUCE(clustered_sum, float, floatBitsToUint, uintBitsToFloat, PLUS)
CLUSTERED_REDUCE(clustered_max, float, floatBitsToUint, uintBitsToFloat, max)
CLUSTERED_REDUCE(clustered_sum_int, int, uint, int, PLUS)

// Sum over the workgroup, warps in order.
shared float warp_sums[kWarps];
float workgroup_sum(float x) {
  x = clustered_sum(x, 32);
  if (lane_id() == 0) warp_sums[warp_id()] = x;
  barrier();
  precise float sum = warp_sums[0];
  for (int w = 1; w < kWarps; ++w) sum = sum + warp_sums[w];
  barrier();
  return sum;
}

const float kNegInf = uintBitsToFloat(0xFF800000u);
