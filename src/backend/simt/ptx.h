// Wrappers of PTX instructions: programmatic dependent launch, async copies, mbarriers, clusters, warp MMA, packed
// conversions. Everything specific to a GPU vendor is in this file and in wgmma.h; the emulator of the tests implements
// both for the host (tests/emulated_gpu).
#pragma once

namespace zinc::simt {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;

#define ZINC_DEVICE __device__ __forceinline__
#define ZINC_KERNEL extern "C" __global__ void __launch_bounds__(256)
#define ZINC_KERNEL_2_PER_SM extern "C" __global__ void __launch_bounds__(256, 2)  // at least two blocks per SM

// ---- kernels, copies and barriers ----

// Programmatic dependent launch: a kernel may start while the previous one still runs; it must call wait_dependency()
// before it reads the previous kernel's output.
ZINC_DEVICE void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
ZINC_DEVICE void wait_dependency() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// REQUIRES: memory that no running kernel writes.
ZINC_DEVICE void prefetch_l2(const void* ptr) { asm volatile("prefetch.global.L2 [%0];" ::"l"(ptr)); }

// In shared memory. A phase completes after all arrivals and all expected bytes.
using Mbarrier = unsigned long long;
ZINC_DEVICE u32 shared_address(const void* ptr) { return static_cast<u32>(__cvta_generic_to_shared(ptr)); }
// n_arrivals: per phase.
ZINC_DEVICE void mbarrier_init(Mbarrier* mbarrier, int n_arrivals = 1) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(mbarrier)), "r"(n_arrivals) : "memory");
#endif
}
// Makes a thread's mbarrier_init visible to the copies it issues, and to its cluster.
ZINC_DEVICE void fence_mbarrier_init() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// Two threads arrive at a counter in shared memory once per round: true for the second one, after which the memory that
// both have read may be overwritten.
ZINC_DEVICE bool arrive_is_last(int* n_arrived) {
  int n = 0;
#if __CUDA_ARCH__ >= 700
  asm volatile("atom.acq_rel.cta.shared::cta.add.s32 %0, [%1], 1;"
               : "=r"(n)
               : "r"(shared_address(n_arrived))
               : "memory");
#endif
  return n % 2 != 0;
}
// Sets the counter, after all earlier writes of the thread. REQUIRES: one thread at a time changes it.
ZINC_DEVICE void set_arrivals(int* n_arrived, int n) {
#if __CUDA_ARCH__ >= 700
  asm volatile("st.release.cta.shared::cta.s32 [%0], %1;" ::"r"(shared_address(n_arrived)), "r"(n) : "memory");
#endif
}
// Waits until the counter reaches n.
ZINC_DEVICE void wait_arrivals(const int* n_arrived, int n) {
#if __CUDA_ARCH__ >= 700
  int now = 0;
  do {
    asm volatile("ld.acquire.cta.shared::cta.s32 %0, [%1];" : "=r"(now) : "r"(shared_address(n_arrived)) : "memory");
  } while (now < n);
#endif
}
// An arrival that also adds n_bytes to the phase's expected bytes.
ZINC_DEVICE void mbarrier_arrive_expect_tx(Mbarrier* mbarrier, int n_bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(mbarrier)), "r"(n_bytes)
               : "memory");
#endif
}
ZINC_DEVICE void mbarrier_arrive(Mbarrier* mbarrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(mbarrier)) : "memory");
#endif
}
// Adds n_bytes to the current phase's expected bytes, without an arrival.
ZINC_DEVICE void mbarrier_expect_tx(Mbarrier* mbarrier, int n_bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(mbarrier)), "r"(n_bytes)
               : "memory");
#endif
}
// Bulk copy (TMA) from global memory, whose bytes the mbarrier expects. REQUIRES: addresses and size are multiples
// of 16.
enum CacheHint : int { kEvictNormal, kEvictFirst };  // evict first: data that is read once
template <CacheHint hint = kEvictNormal>
ZINC_DEVICE void bulk_copy(void* to, const void* from, int n_bytes, Mbarrier* mbarrier) {
#if __CUDA_ARCH__ >= 900
  if constexpr (hint == kEvictFirst) {
    constexpr unsigned long long kEvictFirstPolicy = 0x12F0000000000000ull;  // as createpolicy encodes it
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(shared_address(to)),
        "l"(from), "r"(n_bytes), "r"(shared_address(mbarrier)), "l"(kEvictFirstPolicy)
        : "memory");
  } else {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(n_bytes), "r"(shared_address(mbarrier))
                 : "memory");
  }
#endif
}
// A bulk copy that also arrives at the mbarrier.
template <CacheHint hint = kEvictNormal>
ZINC_DEVICE void bulk_copy_expect_tx(void* to, const void* from, int n_bytes, Mbarrier* mbarrier) {
  mbarrier_arrive_expect_tx(mbarrier, n_bytes);
  bulk_copy<hint>(to, from, n_bytes, mbarrier);
}
// Waits for the phase of this parity; the first phase is 0.
ZINC_DEVICE void mbarrier_wait(Mbarrier* mbarrier, int parity) {
#if __CUDA_ARCH__ >= 900
  u32 is_complete = 0;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                 : "=r"(is_complete)
                 : "r"(shared_address(mbarrier)), "r"(parity)
                 : "memory");
  } while (!is_complete);
#endif
}
// The same with the retry loop in PTX: compiles to different code, and is what gemm_wgmma.cu was measured with.
ZINC_DEVICE void mbarrier_spin_wait(Mbarrier* mbarrier, int parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n}" ::"r"(shared_address(mbarrier)),
      "r"(parity)
      : "memory");
#endif
}

// Thread block clusters: distributed shared memory.
ZINC_DEVICE int cluster_rank() {
  u32 rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return static_cast<int>(rank);
}
// Cluster barrier, split into arrive and wait. Relaxed: publishes only mbarriers initialized before a
// fence_mbarrier_init().
ZINC_DEVICE void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
ZINC_DEVICE void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// Stores to `to` in the block of that rank and reports the bytes to its `mbarrier`.
ZINC_DEVICE void store_async_remote(float* to, Mbarrier* mbarrier, int rank, float value) {
#if __CUDA_ARCH__ >= 900
  u32 remote_to, remote_mbarrier;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_to) : "r"(shared_address(to)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_mbarrier) : "r"(shared_address(mbarrier)), "r"(rank));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(remote_to),
               "r"(__float_as_uint(value)), "r"(remote_mbarrier)
               : "memory");
#endif
}

// Named barrier for n_threads of a block, in whole warps. id: 1 to 15.
template <int n_threads>
ZINC_DEVICE void named_barrier_sync(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(n_threads) : "memory");
}

// Waits for the first phase, filled by store_async_remote() of all blocks.
ZINC_DEVICE void mbarrier_wait_cluster(Mbarrier* mbarrier) {
#if __CUDA_ARCH__ >= 900
  u32 is_complete = 0;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
        "selp.b32 %0, 1, 0, p;\n}"
        : "=r"(is_complete)
        : "r"(shared_address(mbarrier))
        : "memory");
  } while (!is_complete);
#endif
}

// cp.async of 4, 8 or 16 bytes to shared memory, in commit groups. Synchronous before Ampere.
template <int n_bytes>
ZINC_DEVICE void cp_async(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  if constexpr (n_bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(n_bytes));
  }
#else
  for (int i = 0; i < n_bytes / 4; ++i) static_cast<u32*>(to)[i] = static_cast<const u32*>(from)[i];
#endif
}
ZINC_DEVICE void cp_async_16(void* to, const void* from) { cp_async<16>(to, from); }
// Fills with zeros, without reading, unless `is_valid`.
ZINC_DEVICE void cp_async_16_zfill(void* to, const void* from, bool is_valid) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(is_valid ? 16 : 0));
#else
  for (int i = 0; i < 4; ++i) static_cast<u32*>(to)[i] = is_valid ? static_cast<const u32*>(from)[i] : 0;
#endif
}
// n_threads threads, of which this one is number `thread`, copy n_bytes of weights, which are read once. REQUIRES:
// n_bytes is a multiple of 16 and at most max_bytes.
template <int n_threads, int max_bytes>
ZINC_DEVICE void cp_async_weights(u8* to, const u8* from, int n_bytes, int thread) {
  constexpr int kStep = 16 * n_threads, kSteps = (max_bytes + kStep - 1) / kStep;
  to += 16 * thread;
  from += 16 * thread;
  n_bytes -= 16 * thread;
#if __CUDA_ARCH__ >= 800
  const u32 address = shared_address(to);
#pragma unroll(kSteps < 10 ? kSteps : 8)
  for (int k = 0; k < kSteps; ++k) {
    if (k * kStep < n_bytes) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address + k * kStep), "l"(from + k * kStep)
                   : "memory");
    }
  }
#else
  constexpr int kInFlight = kSteps < 10 ? kSteps : 8;  // loads before the first store
#pragma unroll 1
  for (int first = 0; first < n_bytes; first += kInFlight * kStep) {
    uint4 loaded[kInFlight];
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (first + k * kStep < n_bytes) loaded[k] = __ldg(reinterpret_cast<const uint4*>(from + first + k * kStep));
    }
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) {
      if (first + k * kStep < n_bytes) *reinterpret_cast<uint4*>(to + first + k * kStep) = loaded[k];
    }
  }
#endif
}
ZINC_DEVICE void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}
// Waits until at most n of the thread's own groups are pending.
template <int n>
ZINC_DEVICE void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

// ---- conversions and arithmetic ----

ZINC_DEVICE float half_to_float(u16 h) {
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
  return f;
}
ZINC_DEVICE u16 float_to_half(float f) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
}
// Packed pairs, rounded to nearest.
ZINC_DEVICE u32 sub_f16x2(u32 a, u32 b) {
  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
ZINC_DEVICE u32 mul_f16x2(u32 a, u32 b) {
  asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
ZINC_DEVICE u32 mul_bf16x2(u32 a, u32 b) {
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
#endif
  return a;
}

// E4M3, a in the lower byte: rounded to nearest even, saturated at 448. REQUIRES: not NaN.
ZINC_DEVICE u16 floats_to_e4m3(float a, float b) {
#if __CUDA_ARCH__ >= 890
  u16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
  return pair;
#else
  const auto byte = [](float x) {
    const float size = fminf(fabsf(x), 448.0f);
    const u32 bits = __float_as_uint(size), sign = __float_as_uint(x) >> 24 & 0x80u;
    // Adding 2^14 makes the addition round to a multiple of 2^-9.
    if (size < 0x1p-6f) return sign | (__float_as_uint(size + 0x1p14f) - 0x46800000u);
    return sign | (bits - (120u << 23) + 0x7FFFFu + (bits >> 20 & 1u)) >> 20;
  };
  return static_cast<u16>(byte(a) | byte(b) << 8);
#endif
}
// Two E4M3 values as f16, exactly. REQUIRES: not NaN.
ZINC_DEVICE u32 e4m3_to_halves(u16 pair) {
  u32 halves;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
#else
  const u32 spread = __byte_perm(pair, 0, 0x1404u);  // a byte above each half
  halves = (spread & 0x80008000u) | (spread >> 1 & 0x3F803F80u);
  halves = mul_f16x2(halves, 0x5C005C00u);  // 2^8, the difference of the exponent biases
#endif
  return halves;
}
ZINC_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Selects four of the eight bytes of `low` and `high` by the low four nibbles of `nibbles`; a nibble above 7 gives
// zero. REQUIRES: bytes below 128.
ZINC_DEVICE u32 prmt(u32 low, u32 high, u32 nibbles) {
  u32 bytes;  // __byte_perm ignores the highest bit of each nibble
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(nibbles));
  return bytes;
}

// dp4a of unsigned a and signed b.
ZINC_DEVICE int dp4a_u8s8(u32 a, int b, int c) {
  int d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// 1 / x and 1 / sqrt(x), to the last bit or two. REQUIRES: x is not tiny.
ZINC_DEVICE float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
ZINC_DEVICE float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Forces x to be computed here, before the wait, not at its first use.
template <class T>
ZINC_DEVICE void keep_in_register(T& x) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(x));
  } else {
    asm volatile("" : "+r"(x));
  }
}

// Returns the previous value. Acquire-release: later callers see the writes of earlier callers' blocks.
ZINC_DEVICE int atomic_inc_acq_rel(int* counter) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
}

// ---- warp MMA ----

// d += a * b, f16.
ZINC_DEVICE void mma_m16n8k16_f16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
  __trap();                                 // never launched before Ampere
#endif
}

// Four 8 x 8 f16 matrices, transposed; a lane gives row lane % 8 of matrix lane / 8, n_bytes after `row`.
ZINC_DEVICE uint4 ldmatrix_x4_trans(const void* row, int n_bytes = 0) {
  uint4 m = {0, 0, 0, 0};
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(shared_address(row) + n_bytes)
               : "memory");
#endif
  return m;
}

// d += a * b, int8.
ZINC_DEVICE void mma_m16n8k32_s8(int (&d)[4], const int (&a)[4], const int (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();                                 // never launched before Ampere
#endif
}
ZINC_DEVICE void mma_m16n8k16_s8(int (&d)[4], int a0, int a1, int b0) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a0), "r"(a1), "r"(b0));
#else
  __trap();
#endif
}

}  // namespace zinc::simt
