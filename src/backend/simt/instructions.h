// The instructions kernels use beyond C++, under our own names: the order between kernels, copies that run beside the
// arithmetic, barriers, matrix products of a warp, pairs of small numbers. What differs between makers of GPUs is in
// this file and in warpgroup.h; the emulator of the tests has both once more, for the host (tests/emulated_gpu).
#pragma once

namespace zinc::simt {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;

#define ZINC_DEVICE __device__ __forceinline__
#define ZINC_KERNEL extern "C" __global__ void __launch_bounds__(256)
#define ZINC_KERNEL_2 extern "C" __global__ void __launch_bounds__(256, 2)  // two blocks a multiprocessor suffice

// ---- between kernels ----

// A kernel may be started while the one before it still runs; it must wait before it reads what that one writes.
ZINC_DEVICE void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
ZINC_DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Brings what nobody writes nearer, before it is needed.
ZINC_DEVICE void fetch_ahead(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// A place in shared memory that copies report to: full once all bytes announced to it have arrived.
using Gate = unsigned long long;
ZINC_DEVICE u32 shared_address(const void* at) { return static_cast<u32>(__cvta_generic_to_shared(at)); }
// n_arrivals: what a phase of it takes; a copy is one.
ZINC_DEVICE void open_gate(Gate* gate, int n_arrivals = 1) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(gate)), "r"(n_arrivals) : "memory");
#endif
}
// What one thread did to its gates is seen by the copies it begins.
ZINC_DEVICE void end_opening() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
// Of two that come to a place in shared memory again and again: whether the other one is there already, and what it
// read before it came may be overwritten.
ZINC_DEVICE bool comes_second(int* n_came) {
  int n = 0;
#if __CUDA_ARCH__ >= 700
  asm volatile("atom.acq_rel.cta.shared::cta.add.s32 %0, [%1], 1;" : "=r"(n) : "r"(shared_address(n_came)) : "memory");
#endif
  return n % 2 != 0;
}
// Until so many have come there.
ZINC_DEVICE void await_come(const int* n_came, int n) {
#if __CUDA_ARCH__ >= 700
  int now = 0;
  do {
    asm volatile("ld.acquire.cta.shared::cta.s32 %0, [%1];" : "=r"(now) : "r"(shared_address(n_came)) : "memory");
  } while (now < n);
#endif
}
// An arrival that is complete once so many bytes have come.
ZINC_DEVICE void expect_at(Gate* gate, int n_bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(gate)), "r"(n_bytes)
               : "memory");
#endif
}
// A thread begins a copy of n_bytes from global memory, which the gate expects. REQUIRES: everything a multiple of 16.
enum Reuse : int { kReadAgain, kReadOnce };  // what is read once leaves the cache before anything else does
template <Reuse reuse = kReadAgain>
ZINC_DEVICE void copy_expected(void* to, const void* from, int n_bytes, Gate* gate) {
#if __CUDA_ARCH__ >= 900
  if constexpr (reuse == kReadOnce) {
    constexpr unsigned long long kEvictFirst = 0x12F0000000000000ull;  // as createpolicy makes it
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(shared_address(to)),
        "l"(from), "r"(n_bytes), "r"(shared_address(gate)), "l"(kEvictFirst)
        : "memory");
  } else {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(n_bytes), "r"(shared_address(gate))
                 : "memory");
  }
#endif
}
// Likewise, one that is all that the gate waits for.
template <Reuse reuse = kReadAgain>
ZINC_DEVICE void copy_bulk(void* to, const void* from, int n_bytes, Gate* gate) {
  expect_at(gate, n_bytes);
  copy_expected<reuse>(to, from, n_bytes, gate);
}
// Until the gate's phase of this parity is over: its first is 0.
ZINC_DEVICE void wait_at(Gate* gate, int parity) {
#if __CUDA_ARCH__ >= 900
  u32 is_over = 0;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                 : "=r"(is_over)
                 : "r"(shared_address(gate)), "r"(parity)
                 : "memory");
  } while (!is_over);
#endif
}

// Blocks of a cluster run at the same time and reach each other's shared memory.
ZINC_DEVICE int cluster_rank() {
  u32 rank = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
  return static_cast<int>(rank);
}
// All threads of all its blocks come to a point, and each goes on from there when it has to. Nothing is shown to the
// others thereby but gates whose opening was ended.
ZINC_DEVICE void cluster_arrives() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
ZINC_DEVICE void wait_for_cluster() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
// To where `to` and `gate` lie in the block of that rank.
ZINC_DEVICE void store_at_rank(float* to, Gate* gate, int rank, float value) {
#if __CUDA_ARCH__ >= 900
  u32 its_to, its_gate;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_to) : "r"(shared_address(to)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(its_gate) : "r"(shared_address(gate)), "r"(rank));
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(its_to),
               "r"(__float_as_uint(value)), "r"(its_gate)
               : "memory");
#endif
}

// So many threads of a block, in whole warps, wait for each other. id: 1 to 15.
template <int n_threads>
ZINC_DEVICE void meet(int id) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(n_threads) : "memory");
}

// Until all blocks' stores to the gate, in its first phase, have come.
ZINC_DEVICE void wait_for_ranks(Gate* gate) {
#if __CUDA_ARCH__ >= 900
  u32 is_over = 0;
  do {
    asm volatile(
        "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0;\n"
        "selp.b32 %0, 1, 0, p;\n}"
        : "=r"(is_over)
        : "r"(shared_address(gate))
        : "memory");
  } while (!is_over);
#endif
}

// Copies of 4, 8 or 16 bytes to shared memory that a thread begins, in sets. Before Ampere they end where they begin.
template <int n_bytes>
ZINC_DEVICE void copy_async(void* to, const void* from) {
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
ZINC_DEVICE void copy_16(void* to, const void* from) { copy_async<16>(to, from); }
// Zeros if `is_there` is not: then nothing is read.
ZINC_DEVICE void copy_16_or_clear(void* to, const void* from, bool is_there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(is_there ? 16 : 0));
#else
  for (int i = 0; i < 4; ++i) static_cast<u32*>(to)[i] = is_there ? static_cast<const u32*>(from)[i] : 0;
#endif
}
ZINC_DEVICE void end_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;");
#endif
}
// All of the thread's own have arrived but for the last n sets.
template <int n>
ZINC_DEVICE void await_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
#endif
}

// ---- numbers ----

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
// Two numbers in a word, each rounded.
ZINC_DEVICE u32 subtract_pairs(u32 a, u32 b) {
  asm("sub.rn.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
ZINC_DEVICE u32 multiply_pairs(u32 a, u32 b) {
  asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
ZINC_DEVICE u32 multiply_bfloat_pairs(u32 a, u32 b) {
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
#endif
  return a;
}

// Two numbers as E4M3, a in the lower byte: to nearest even, at most 448. REQUIRES: they are numbers.
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
// Two E4M3 numbers as halves, exactly. REQUIRES: they are numbers.
ZINC_DEVICE u32 e4m3_to_halves(u16 pair) {
  u32 halves;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
#else
  const u32 apart = __byte_perm(pair, 0, 0x1404u);  // a byte above each half
  halves = (apart & 0x80008000u) | (apart >> 1 & 0x3F803F80u);
  halves = multiply_pairs(halves, 0x5C005C00u);  // by 2^8: what the exponents' biases differ by
#endif
  return halves;
}
ZINC_DEVICE float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Bytes of `low` and `high`, eight in all, at the places the low four nibbles of `nibbles` name; zero for a nibble
// above 7. REQUIRES: bytes below 128.
ZINC_DEVICE u32 select_4(u32 low, u32 high, u32 nibbles) {
  u32 bytes;  // __byte_perm would do without the nibbles' highest bits
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(low), "r"(high), "r"(nibbles));
  return bytes;
}

// c + the sum of four products of unsigned and signed bytes.
ZINC_DEVICE int dot_unsigned(u32 a, int b, int c) {
  int d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// 1 / x and 1 / sqrt(x), to the last bit or two, of numbers that are not tiny.
ZINC_DEVICE float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
ZINC_DEVICE float reciprocal_root(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A number that is worked out here, not where it is first used: before the wait there is time.
template <class T>
ZINC_DEVICE void settle(T& x) {
  if constexpr (sizeof(T) == 8) {
    asm volatile("" : "+l"(x));
  } else {
    asm volatile("" : "+r"(x));
  }
}

// What was there; what the thread's block wrote before is seen by who comes later and asks the same way.
ZINC_DEVICE int add_one(int* at) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;" : "=r"(before) : "l"(at) : "memory");
  return before;
}

// ---- matrix products of a warp ----

// d += a * b, 16 x 8 x 16 halves.
ZINC_DEVICE void multiply_halves(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
  __trap();                                      // never launched on older parts
#endif
}

// Four matrices of 8 x 8 halves, turned over; a lane names row lane % 8 of matrix lane / 8, so many bytes after `row`.
ZINC_DEVICE uint4 load_turned(const void* row, int n_bytes = 0) {
  uint4 m = {0, 0, 0, 0};
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(shared_address(row) + n_bytes)
               : "memory");
#endif
  return m;
}

// d += a * b, 16 x 8 x 32 signed bytes; and the half of it, 16 x 8 x 16.
ZINC_DEVICE void multiply_32(int (&d)[4], const int (&a)[4], const int (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();                                      // never launched on older parts
#endif
}
ZINC_DEVICE void multiply_16(int (&d)[4], int a0, int a1, int b0) {
#if __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a0), "r"(a1), "r"(b0));
#else
  __trap();
#endif
}

}  // namespace zinc::simt
