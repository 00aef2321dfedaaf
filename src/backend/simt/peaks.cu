// Measures peak memory bandwidth: independent streaming reads.
#include "backend/simt/device_common.h"

namespace zinc::simt {

ZINC_KERNEL read_memory(ReadParams p) {
  const uint4* from = reinterpret_cast<const uint4*>(p.bytes);
  const long long n = p.n_bytes / 16, stride = static_cast<long long>(gridDim.x) * kThreads;
  u32 sum = 0;
#pragma unroll 8
  for (long long i = static_cast<long long>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += stride) {
    const uint4 v = __ldcs(from + i);
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x9E3779B9u) *p.sum = 1;  // never true for zeros; keeps the reads alive
}

}  // namespace zinc::simt
