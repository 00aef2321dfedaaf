// CUDA built-ins that our kernels use, in C++ for the host.
#pragma once

#include <stdint.h>
#include <string.h>
#include <initializer_list>

#include "runtime.h"

// Those that kernels call. <cmath> would be a third of a kernel's compile time.
extern "C" {
double exp(double) noexcept;
float expf(float) noexcept;
float fabsf(float) noexcept;
float floorf(float) noexcept;
float fmaf(float, float, float) noexcept;
float fmaxf(float, float) noexcept;
double fmin(double, double) noexcept;
float fminf(float, float) noexcept;
float log1pf(float) noexcept;
float roundf(float) noexcept;
void sincos(double, double*, double*) noexcept;
double sqrt(double) noexcept;
float sqrtf(float) noexcept;
float tanhf(float) noexcept;
}
#define isnan __builtin_isnan

#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __global__
#define __grid_constant__
#define __constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
#define threadIdx emulated_index.thread
#define blockIdx emulated_index.block
#define gridDim emulated_index.grid
#define blockDim emulated_index.size

// Dynamic shared memory of the block; as large as on any GPU.
alignas(1024) static char emulated_shared[232448];
// All shared memory: the image's .bss. The names are the linker's.
extern "C" __attribute__((visibility("hidden"))) char __bss_start[], _end[];
extern "C" char* emulated_shared_begin() { return __bss_start; }
extern "C" char* emulated_shared_end() { return _end; }
extern "C" char* emulated_dynamic_shared_begin() { return emulated_shared; }
extern "C" char* emulated_dynamic_shared_end() { return emulated_shared + sizeof emulated_shared; }

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

template <class A, class B>
constexpr auto min(A a, B b) {
  using Common = decltype(true ? A() : B());
  return a < b ? static_cast<Common>(a) : static_cast<Common>(b);
}
template <class A, class B>
constexpr auto max(A a, B b) {
  using Common = decltype(true ? A() : B());
  return a < b ? static_cast<Common>(b) : static_cast<Common>(a);
}

template <class To, class From>
inline To emulated_bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline float __uint_as_float(unsigned bits) { return emulated_bits<float>(bits); }
inline float __int_as_float(int bits) { return emulated_bits<float>(bits); }
inline unsigned __float_as_uint(float x) { return emulated_bits<unsigned>(x); }
inline int __float_as_int(float x) { return emulated_bits<int>(x); }
inline double __hiloint2double(int high, int low) {
  return emulated_bits<double>(static_cast<uint64_t>(static_cast<unsigned>(high)) << 32 | static_cast<unsigned>(low));
}
inline int __float2int_rn(float x) { return static_cast<int>(__builtin_nearbyintf(x)); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

inline int __ffs(unsigned bits) { return __builtin_ffs(static_cast<int>(bits)); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  by %= 32;
  return by ? high << by | low >> (32 - by) : high;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  by %= 32;
  return by ? low >> by | high << (32 - by) : low;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned which = selector >> 4 * i & 15;
    unsigned byte = static_cast<unsigned>(bytes >> 8 * (which & 7) & 0xFF);
    if (which & 8) byte = byte & 0x80 ? 0xFF : 0;
    result |= byte << 8 * i;
  }
  return result;
}
inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<int8_t>(a >> 8 * i) * static_cast<int8_t>(b >> 8 * i);
  return c;
}

inline void __syncthreads() { emulated_sync_block(); }
inline void __syncwarp(unsigned = ~0u) { emulated_sync_warp(); }
inline void __threadfence() {}
inline void __nanosleep(unsigned) { emulated_yield(); }
[[noreturn]] inline void __trap() { __builtin_abort(); }
template <class T>
T __ldg(const T* at) {
  return *at;
}
template <class T>
T __ldcg(const T* at) {
  return *at;
}
template <class T>
T __ldcs(const T* at) {
  return *at;
}
template <class T>
void __stcs(T* at, T x) {
  *at = x;
}
template <class T, class U>
T atomicAdd(T* at, U by) {
  const T before = *at;
  *at = static_cast<T>(*at + by);
  return before;
}

// The x of each lane, as a function of the lane; valid until the caller's next barrier.
template <class T>
auto emulated_lanes(const T& x) {
  static_assert(sizeof(T) <= sizeof(EmulatedWords));
  EmulatedWords own;
  memcpy(&own, &x, sizeof x);
  return [lanes = emulated_exchange(own)](int lane) {
    T its;
    memcpy(&its, lanes + lane, sizeof its);
    return its;
  };
}
inline int emulated_lane() { return static_cast<int>(emulated_index.thread.x % 32); }
template <class T>
T __shfl_sync(unsigned, T x, int lane, int width = 32) {
  return emulated_lanes(x)(emulated_lane() / width * width + lane % width);
}
template <class T>
T __shfl_xor_sync(unsigned, T x, int mask) {
  return emulated_lanes(x)(emulated_lane() ^ mask);
}
template <class T>
T __shfl_up_sync(unsigned, T x, int by) {
  return emulated_lanes(x)(emulated_lane() < by ? emulated_lane() : emulated_lane() - by);
}
template <class T>
T __shfl_down_sync(unsigned, T x, int by) {
  return emulated_lanes(x)(emulated_lane() + by > 31 ? emulated_lane() : emulated_lane() + by);
}
// REQUIRES: of_two is associative.
template <class T, class F>
T emulated_reduce(T x, F&& of_two) {
  const auto lanes = emulated_lanes(x);
  T all = lanes(0);
  for (int lane = 1; lane < 32; ++lane) all = of_two(all, lanes(lane));
  return all;
}
inline unsigned __reduce_max_sync(unsigned, unsigned x) { return emulated_reduce(x, max<unsigned, unsigned>); }
inline unsigned __reduce_min_sync(unsigned, unsigned x) { return emulated_reduce(x, min<unsigned, unsigned>); }
inline int __reduce_add_sync(unsigned, int x) {
  return emulated_reduce(x, [](int a, int b) { return a + b; });
}
inline unsigned __ballot_sync(unsigned, bool is_set) {
  return emulated_reduce(is_set ? 1u << emulated_lane() : 0u, [](unsigned a, unsigned b) { return a | b; });
}
inline bool __any_sync(unsigned all, bool is_set) { return __ballot_sync(all, is_set) != 0; }
inline bool __all_sync(unsigned all, bool is_set) { return __ballot_sync(all, !is_set) == 0; }
