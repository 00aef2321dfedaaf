// src/backend/simt/ptx.h for the host: the same functions with the semantics of the PTX instructions. Async operations
// complete in their wait, no sooner.
#pragma once

namespace zinc::simt {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;

#define ZINC_DEVICE inline
#define ZINC_KERNEL extern "C" void
#define ZINC_KERNEL_2_PER_SM extern "C" void

// ---- kernels, copies and barriers ----

inline void launch_dependents() { emulated_launch_dependents(); }
inline void wait_dependency() { emulated_wait_dependency(); }
inline void prefetch_l2(const void*) {}

using Mbarrier = unsigned long long;
struct MbarrierState {
  int n_bytes;  // still pending
  u16 n_missing;
  u16 n_arrivals : 15, parity : 1;
};
static_assert(sizeof(MbarrierState) == sizeof(Mbarrier));

inline void check_initialized(const Mbarrier* mbarrier) {
  constexpr Mbarrier kPoison = 0xEEEEEEEEEEEEEEEE;
  if (*mbarrier == kPoison) emulated_fail("uses an mbarrier before mbarrier_init");
}
inline void mbarrier_update(Mbarrier* mbarrier, int arrivals, int bytes) {
  check_initialized(mbarrier);
  auto state = emulated_bits<MbarrierState>(*mbarrier);
  state.n_missing = static_cast<u16>(state.n_missing - arrivals);
  state.n_bytes += bytes;
  if (state.n_missing == 0 && state.n_bytes == 0) {
    state.n_missing = state.n_arrivals;
    state.parity ^= 1;
  }
  *mbarrier = emulated_bits<Mbarrier>(state);
}

inline u32 shared_address(const void* at) { return static_cast<u32>(static_cast<const char*>(at) - emulated_shared); }
inline void mbarrier_init(Mbarrier* mbarrier, int n_arrivals = 1) {
  *mbarrier = emulated_bits<Mbarrier>(MbarrierState{.n_bytes = 0,
                                                    .n_missing = static_cast<u16>(n_arrivals),
                                                    .n_arrivals = static_cast<u16>(n_arrivals),
                                                    .parity = 0});
}
inline void fence_mbarrier_init() {}
inline void mbarrier_arrive(Mbarrier* mbarrier) { mbarrier_update(mbarrier, 1, 0); }
inline bool arrive_is_last(int* n_arrived) { return (*n_arrived)++ % 2 != 0; }
inline void set_arrivals(int* n_arrived, int n) { *n_arrived = n; }
inline void wait_arrivals(const int* n_arrived, int n) {
  while (*n_arrived < n) emulated_yield();
}
inline void mbarrier_arrive_expect_tx(Mbarrier* mbarrier, int n_bytes) { mbarrier_update(mbarrier, 1, n_bytes); }
inline void mbarrier_expect_tx(Mbarrier* mbarrier, int n_bytes) { mbarrier_update(mbarrier, 0, n_bytes); }
enum CacheHint : int { kEvictNormal, kEvictFirst };
template <CacheHint hint = kEvictNormal>
void bulk_copy(void* to, const void* from, int n_bytes, Mbarrier* mbarrier) {
  const auto misplaced =
      reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | static_cast<u32>(n_bytes);
  if (misplaced % 16 != 0) __trap();
  check_initialized(mbarrier);
  emulated_bulk_copy(to, from, n_bytes, mbarrier);
}
template <CacheHint hint = kEvictNormal>
void bulk_copy_expect_tx(void* to, const void* from, int n_bytes, Mbarrier* mbarrier) {
  mbarrier_arrive_expect_tx(mbarrier, n_bytes);
  bulk_copy<hint>(to, from, n_bytes, mbarrier);
}
inline void mbarrier_wait(Mbarrier* mbarrier, int parity) {
  while (emulated_bits<MbarrierState>(*mbarrier).parity == parity) {
    if (const int n_bytes = emulated_complete_tx(mbarrier)) {
      mbarrier_update(mbarrier, 0, -n_bytes);
    } else {
      emulated_yield();
    }
  }
}
inline void mbarrier_spin_wait(Mbarrier* mbarrier, int parity) { mbarrier_wait(mbarrier, parity); }

inline int cluster_rank() { return emulated_index.rank; }
inline void cluster_arrive() { emulated_cluster_arrive(); }
inline void cluster_wait() { emulated_cluster_wait(); }
inline void store_async_remote(float* to, Mbarrier* mbarrier, int rank, float value) {
  Mbarrier* remote_mbarrier = static_cast<Mbarrier*>(emulated_map_to_rank(mbarrier, rank));
  check_initialized(remote_mbarrier);
  emulated_store_async(emulated_map_to_rank(to, rank), __float_as_uint(value), remote_mbarrier);
}
inline void mbarrier_wait_cluster(Mbarrier* mbarrier) { mbarrier_wait(mbarrier, 0); }

template <int n_threads>
void named_barrier_sync(int id) {
  emulated_named_barrier_sync(id, n_threads);
}

template <int n_bytes>
void cp_async(void* to, const void* from) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % n_bytes != 0) __trap();
#if __CUDA_ARCH__ >= 800
  emulated_cp_async(to, from, n_bytes);
#else
  memcpy(to, from, n_bytes);
#endif
}
inline void cp_async_16(void* to, const void* from) { cp_async<16>(to, from); }
inline void cp_async_16_zfill(void* to, const void* from, bool is_valid) {
  alignas(16) static const u32 zeros[4] = {0, 0, 0, 0};
  cp_async<16>(to, is_valid ? from : zeros);
}
template <int n_threads, int max_bytes>
void cp_async_weights(u8* to, const u8* from, int n_bytes, int thread) {
  if (n_bytes % 16 != 0 || n_bytes > max_bytes || thread < 0 || thread >= n_threads) __trap();
  for (int i = 16 * thread; i < n_bytes; i += 16 * n_threads) cp_async_16(to + i, from + i);
}
inline void cp_async_commit() { emulated_cp_async_commit(); }
template <int n>
void cp_async_wait() {
  emulated_cp_async_wait(n);
}

// ---- conversions and arithmetic ----

inline float half_to_float(u16 h) { return static_cast<float>(emulated_bits<_Float16>(h)); }
inline u16 float_to_half(float f) { return emulated_bits<u16>(static_cast<_Float16>(f)); }

inline u32 sub_f16x2(u32 a, u32 b) {
  const auto of = [&](int shift) {
    return static_cast<u32>(
        float_to_half(half_to_float(static_cast<u16>(a >> shift)) - half_to_float(static_cast<u16>(b >> shift))));
  };
  return of(0) | of(16) << 16;
}
inline u32 mul_f16x2(u32 a, u32 b) {
  const auto of = [&](int shift) {
    return static_cast<u32>(
        float_to_half(half_to_float(static_cast<u16>(a >> shift)) * half_to_float(static_cast<u16>(b >> shift))));
  };
  return of(0) | of(16) << 16;
}
// REQUIRES: exact results; our kernels need no other.
inline u32 mul_bf16x2(u32 a, u32 b) {
  const u32 low = __float_as_uint(__uint_as_float(a << 16) * __uint_as_float(b << 16));
  const u32 high = __float_as_uint(__uint_as_float(a & 0xFFFF0000u) * __uint_as_float(b & 0xFFFF0000u));
  if ((low | high) & 0xFFFFu) __trap();
  return low >> 16 | high;
}

// E4M3: 4 exponent bits with bias 7, 3 mantissa bits, no infinity.
inline u32 float_to_e4m3(float x) {
  const float size = fminf(fabsf(x), 448.0f);
  const int exponent = size < 0x1p-6f ? -6 : __builtin_ilogbf(size);
  const int steps = static_cast<int>(__builtin_nearbyintf(__builtin_ldexpf(size, 3 - exponent)));  // 8 to 16 if normal
  return (__builtin_signbit(x) ? 0x80u : 0u) + static_cast<u32>((exponent + 6) * 8 + steps);
}
inline u16 floats_to_e4m3(float a, float b) { return static_cast<u16>(float_to_e4m3(a) | float_to_e4m3(b) << 8); }
inline float e4m3_to_float(u32 byte) {
  const int exponent = static_cast<int>(byte >> 3 & 15), mantissa = static_cast<int>(byte & 7);
  const float size = exponent == 0 ? __builtin_ldexpf(static_cast<float>(mantissa), -9)
                                   : __builtin_ldexpf(static_cast<float>(8 + mantissa), exponent - 10);
  return byte & 0x80 ? -size : size;
}
inline u32 e4m3_to_halves(u16 pair) {
  return float_to_half(e4m3_to_float(pair & 0xFFu)) | static_cast<u32>(float_to_half(e4m3_to_float(pair >> 8))) << 16;
}
inline float exp2_approx(float x) { return __builtin_exp2f(x); }
inline u32 prmt(u32 low, u32 high, u32 nibbles) { return __byte_perm(low, high, nibbles); }
inline int dp4a_u8s8(u32 a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<int>(a >> 8 * i & 0xFF) * static_cast<int8_t>(b >> 8 * i);
  return c;
}
inline float rcp_approx(float x) { return 1.0f / x; }
inline float rsqrt_approx(float x) { return 1.0f / sqrtf(x); }
template <class T>
void keep_in_register(T&) {}
inline int atomic_inc_acq_rel(int* at) { return (*at)++; }

// ---- warp MMA ----

// d(16 x 8) += a * b, where dot(row words, column words, sum) accumulates four words. `halves`: fragments of four words
// along K. A row of `a` lies in the four lanes of a quad, column c of `b` in those of quad c.
template <class T, int halves, class Dot>
void multiply_fragments(T (&d)[4], const u32 (&a)[2 * halves], const u32 (&b)[halves], Dot&& dot) {
  struct Fragments {
    u32 a[2 * halves], b[halves];
  } own;
  memcpy(own.a, a, sizeof a);
  memcpy(own.b, b, sizeof b);
  const auto lanes = emulated_lanes(own);
  const int row = emulated_lane() / 4 * 4, column = emulated_lane() % 4 * 2 * 4;
  for (int h = 0; h < halves; ++h) {
    u32 rows[2][4], columns[2][4];
    for (int i = 0; i < 4; ++i) {
      for (int r = 0; r < 2; ++r) rows[r][i] = lanes(row + i).a[2 * h + r];
      for (int c = 0; c < 2; ++c) columns[c][i] = lanes(column + 4 * c + i).b[h];
    }
    for (int e = 0; e < 4; ++e) d[e] = dot(rows[e / 2], columns[e % 2], d[e]);
  }
}
inline int dot_bytes(const u32 (&row)[4], const u32 (&column)[4], int sum) {
  for (int i = 0; i < 4; ++i) sum = __dp4a(static_cast<int>(row[i]), static_cast<int>(column[i]), sum);
  return sum;
}
inline float dot_halves(const u32 (&row)[4], const u32 (&column)[4], float sum) {
  for (int i = 0; i < 4; ++i) {
    for (int shift = 0; shift < 32; shift += 16) {
      sum += half_to_float(static_cast<u16>(row[i] >> shift)) * half_to_float(static_cast<u16>(column[i] >> shift));
    }
  }
  return sum;
}

inline void mma_m16n8k16_f16(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const u32 a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
  multiply_fragments<float, 2>(d, a, b, dot_halves);
}
inline void mma_m16n8k32_s8(int (&d)[4], const int (&a)[4], const int (&b)[2]) {
  const u32 words[4] = {u32(a[0]), u32(a[1]), u32(a[2]), u32(a[3])}, columns[2] = {u32(b[0]), u32(b[1])};
  multiply_fragments<int, 2>(d, words, columns, dot_bytes);
}
inline void mma_m16n8k16_s8(int (&d)[4], int a0, int a1, int b0) {
  const u32 words[2] = {u32(a0), u32(a1)}, columns[1] = {u32(b0)};
  multiply_fragments<int, 1>(d, words, columns, dot_bytes);
}

inline uint4 ldmatrix_x4_trans(const void* row, int n_bytes = 0) {
  const auto rows = emulated_lanes(static_cast<const u8*>(row) + n_bytes);
  u32 words[4];
  for (int matrix = 0; matrix < 4; ++matrix) {
    u32 halves[2];
    for (int i = 0; i < 2; ++i) {
      const void* its_row = rows(matrix * 8 + emulated_lane() % 4 * 2 + i);
      halves[i] = static_cast<const u16*>(its_row)[emulated_lane() / 4];
    }
    words[matrix] = halves[0] | halves[1] << 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace zinc::simt
