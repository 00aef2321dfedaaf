// What a device does at most: reads that nothing waits for.
#include "backend/simt/dialect.h"

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
  if (sum == 0x9E3779B9u) *p.sum = 1;  // never of zeros: keeps the reads
}

}  // namespace zinc::simt
