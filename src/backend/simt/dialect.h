// The few things kernels need beyond plain C++, under our own names: conversions, reductions within a warp and a block,
// the order between kernels. Everything that differs between makers of GPUs is in this file.
#pragma once

#include "backend/simt/params.h"

namespace zinc::simt {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;

#define ZINC_DEVICE __device__ __forceinline__
#define ZINC_KERNEL extern "C" __global__ void __launch_bounds__(256)
#define ZINC_KERNEL_2 extern "C" __global__ void __launch_bounds__(256, 2)  // two blocks a multiprocessor suffice

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
ZINC_DEVICE void arrive_at(Gate* gate) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(gate)) : "memory");
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
// What the thread begins now comes after what threads stored to the same place before they met.
ZINC_DEVICE void order_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
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
// All threads of all its blocks come to a point, and each goes on from there when it has to.
ZINC_DEVICE void cluster_arrives() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
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

// Copies of 4, 8 or 16 bytes to shared memory that a thread begins, in sets.
template <int n_bytes>
ZINC_DEVICE void copy_async(void* to, const void* from) {
#if __CUDA_ARCH__ >= 800
  if constexpr (n_bytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(n_bytes));
  }
#endif
}
ZINC_DEVICE void copy_16(void* to, const void* from) { copy_async<16>(to, from); }
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

// Brings a kernel's parameters into the constant cache, all lines at once, before they are needed one after the other.
template <class P>
ZINC_DEVICE void touch_params(const P& p) {
  constexpr int kLine = 64;
  const int at = static_cast<int>(threadIdx.x) % 32 * kLine;
  if (at < static_cast<int>(sizeof(P))) {
    const int word = *reinterpret_cast<const int*>(reinterpret_cast<const char*>(&p) + at);
    asm volatile("" ::"r"(word));
  }
}

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
ZINC_DEVICE float bfloat_to_float(u16 b) { return __uint_as_float(static_cast<u32>(b) << 16); }
ZINC_DEVICE float low_half(u32 pair) { return half_to_float(static_cast<u16>(pair & 0xFFFFu)); }
ZINC_DEVICE float high_half(u32 pair) { return half_to_float(static_cast<u16>(pair >> 16)); }

ZINC_DEVICE int lane_id() { return static_cast<int>(threadIdx.x) & 31; }
ZINC_DEVICE int warp_id() { return static_cast<int>(threadIdx.x) >> 5; }

// Sums and maxima over `width` neighbouring lanes; every lane gets the same bits.
ZINC_DEVICE float lanes_sum(float x, int width) {
  for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
ZINC_DEVICE int lanes_sum(int x, int width) {
  for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, step);
  return x;
}
ZINC_DEVICE float lanes_max(float x, int width) {
  for (int step = width / 2; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, step));
  return x;
}

// The largest over all lanes. REQUIRES: numbers that are not negative.
ZINC_DEVICE float lanes_largest(float x) {
#if __CUDA_ARCH__ >= 800
  return __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(x)));  // they are ordered as their bits are
#else
  return lanes_max(x, 32);
#endif
}

// Sum over the block's warps, in their order. `room`: kWarps floats of shared memory.
ZINC_DEVICE float block_sum(float x, float* room) {
  x = lanes_sum(x, 32);
  if (lane_id() == 0) room[warp_id()] = x;
  __syncthreads();
  float sum = room[0];
  for (int w = 1; w < kWarps; ++w) sum += room[w];
  __syncthreads();
  return sum;
}

// c + the sum of four products of unsigned and signed bytes.
ZINC_DEVICE int dot_unsigned(u32 a, int b, int c) {
  int d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

ZINC_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Bytes of `a` at the places the low four nibbles of `nibbles` name, from a table of 16 in four words.
ZINC_DEVICE u32 look_up_4(const u32 (&table)[4], u32 nibbles) {
  const u32 places = nibbles & 0x7777u;
  const u32 low = __byte_perm(table[0], table[1], places), high = __byte_perm(table[2], table[3], places);
  return __byte_perm(low, high, 0x3210u | ((nibbles & 0x8888u) >> 1));
}

// All eight nibbles of `packed` looked up: the low ones of each byte in one word, the high ones in the other.
ZINC_DEVICE void look_up_8(const u32 (&table)[4], u32 packed, int& low, int& high) {
  const u32 first = look_up_4(table, packed & 0xFFFFu), second = look_up_4(table, packed >> 16);
  low = static_cast<int>(__byte_perm(first, second, 0x6420u));
  high = static_cast<int>(__byte_perm(first, second, 0x7531u));
}

}  // namespace zinc::simt
