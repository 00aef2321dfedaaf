// src/backend/simt/instructions.h for the host: the same functions, each doing what the GPU's instruction does. What
// runs beside the threads is done when it is waited for, no sooner.
#pragma once

namespace zinc::simt {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;

#define ZINC_DEVICE inline
#define ZINC_KERNEL extern "C" void
#define ZINC_KERNEL_2 extern "C" void

// ---- between kernels ----

inline void let_next_start() { emulated_let_next_start(); }
inline void wait_for_previous() { emulated_wait_for_previous(); }
inline void fetch_ahead(const void*) {}

using Gate = unsigned long long;
struct GateState {
  int n_bytes;  // that are still to come
  u16 n_missing;
  u16 n_arrivals : 15, parity : 1;
};
static_assert(sizeof(GateState) == sizeof(Gate));

inline void check_open(const Gate* gate) {
  constexpr Gate kNobodys = 0xEEEEEEEEEEEEEEEE;
  if (*gate == kNobodys) emulated_refuse("reports to a gate that is not open yet");
}
inline void change_gate(Gate* gate, int arrivals, int bytes) {
  check_open(gate);
  auto state = emulated_bits<GateState>(*gate);
  state.n_missing = static_cast<u16>(state.n_missing - arrivals);
  state.n_bytes += bytes;
  if (state.n_missing == 0 && state.n_bytes == 0) {
    state.n_missing = state.n_arrivals;
    state.parity ^= 1;
  }
  *gate = emulated_bits<Gate>(state);
}

inline u32 shared_address(const void* at) { return static_cast<u32>(static_cast<const char*>(at) - emulated_shared); }
inline void open_gate(Gate* gate, int n_arrivals = 1) {
  *gate = emulated_bits<Gate>(GateState{.n_bytes = 0,
                                        .n_missing = static_cast<u16>(n_arrivals),
                                        .n_arrivals = static_cast<u16>(n_arrivals),
                                        .parity = 0});
}
inline void end_opening() {}
inline void arrive_at(Gate* gate) { change_gate(gate, 1, 0); }
inline bool comes_second(int* n_came) { return (*n_came)++ % 2 != 0; }
inline void await_come(const int* n_came, int n) {
  while (*n_came < n) emulated_yield();
}
inline void expect_at(Gate* gate, int n_bytes) { change_gate(gate, 1, n_bytes); }
enum Reuse : int { kReadAgain, kReadOnce };
template <Reuse reuse = kReadAgain>
void copy_expected(void* to, const void* from, int n_bytes, Gate* gate) {
  const auto misplaced =
      reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | static_cast<u32>(n_bytes);
  if (misplaced % 16 != 0) __trap();
  check_open(gate);
  emulated_begin_reported_copy(to, from, n_bytes, gate);
}
template <Reuse reuse = kReadAgain>
void copy_bulk(void* to, const void* from, int n_bytes, Gate* gate) {
  expect_at(gate, n_bytes);
  copy_expected<reuse>(to, from, n_bytes, gate);
}
inline void wait_at(Gate* gate, int parity) {
  while (emulated_bits<GateState>(*gate).parity == parity) {
    if (const int n_bytes = emulated_receive(gate)) {
      change_gate(gate, 0, -n_bytes);
    } else {
      emulated_yield();
    }
  }
}

inline int cluster_rank() { return emulated_place.rank; }
inline void cluster_arrives() { emulated_cluster_arrives(); }
inline void wait_for_cluster() { emulated_wait_for_cluster(); }
inline void store_at_rank(float* to, Gate* gate, int rank, float value) {
  Gate* its_gate = static_cast<Gate*>(emulated_at_rank(gate, rank));
  check_open(its_gate);
  emulated_begin_reported_store(emulated_at_rank(to, rank), __float_as_uint(value), its_gate);
}
inline void wait_for_ranks(Gate* gate) { wait_at(gate, 0); }

template <int n_threads>
void meet(int id) {
  emulated_meet_some(id, n_threads);
}

template <int n_bytes>
void copy_async(void* to, const void* from) {
  if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % n_bytes != 0) __trap();
#if __CUDA_ARCH__ >= 800
  emulated_begin_copy(to, from, n_bytes);
#else
  std::memcpy(to, from, n_bytes);
#endif
}
inline void copy_16(void* to, const void* from) { copy_async<16>(to, from); }
inline void copy_16_or_clear(void* to, const void* from, bool is_there) {
  alignas(16) static const u32 zeros[4] = {0, 0, 0, 0};
  copy_async<16>(to, is_there ? from : zeros);
}
inline void end_copies() { emulated_end_copies(); }
template <int n>
void await_copies() {
  emulated_await_copies(n);
}

// ---- numbers ----

inline float half_to_float(u16 h) { return static_cast<float>(emulated_bits<_Float16>(h)); }
inline u16 float_to_half(float f) { return emulated_bits<u16>(static_cast<_Float16>(f)); }

inline u32 subtract_pairs(u32 a, u32 b) {
  const auto of = [&](int shift) {
    return static_cast<u32>(
        float_to_half(half_to_float(static_cast<u16>(a >> shift)) - half_to_float(static_cast<u16>(b >> shift))));
  };
  return of(0) | of(16) << 16;
}
inline u32 multiply_pairs(u32 a, u32 b) {
  const auto of = [&](int shift) {
    return static_cast<u32>(
        float_to_half(half_to_float(static_cast<u16>(a >> shift)) * half_to_float(static_cast<u16>(b >> shift))));
  };
  return of(0) | of(16) << 16;
}
// REQUIRES: results that need no rounding, which is all that kernels ask for.
inline u32 multiply_bfloat_pairs(u32 a, u32 b) {
  const u32 low = __float_as_uint(__uint_as_float(a << 16) * __uint_as_float(b << 16));
  const u32 high = __float_as_uint(__uint_as_float(a & 0xFFFF0000u) * __uint_as_float(b & 0xFFFF0000u));
  if ((low | high) & 0xFFFFu) __trap();
  return low >> 16 | high;
}

// E4M3: four bits of exponent, 7 stands for 1; three of mantissa; no infinity.
inline u32 float_to_e4m3(float x) {
  const float size = std::fmin(std::fabs(x), 448.0f);
  const int exponent = size < 0x1p-6f ? -6 : std::ilogb(size);
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));  // 8 to 16 where it is normal
  return (std::signbit(x) ? 0x80u : 0u) + static_cast<u32>((exponent + 6) * 8 + steps);
}
inline u16 floats_to_e4m3(float a, float b) { return static_cast<u16>(float_to_e4m3(a) | float_to_e4m3(b) << 8); }
inline float e4m3_to_float(u32 byte) {
  const int exponent = static_cast<int>(byte >> 3 & 15), mantissa = static_cast<int>(byte & 7);
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return byte & 0x80 ? -size : size;
}
inline u32 e4m3_to_halves(u16 pair) {
  return float_to_half(e4m3_to_float(pair & 0xFFu)) | static_cast<u32>(float_to_half(e4m3_to_float(pair >> 8))) << 16;
}
inline float power_of_two(float x) { return std::exp2(x); }
inline u32 select_4(u32 low, u32 high, u32 nibbles) { return __byte_perm(low, high, nibbles); }
inline int dot_unsigned(u32 a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<int>(a >> 8 * i & 0xFF) * static_cast<int8_t>(b >> 8 * i);
  return c;
}
inline float reciprocal(float x) { return 1.0f / x; }
inline float reciprocal_root(float x) { return 1.0f / std::sqrt(x); }
template <class T>
void settle(T&) {}
inline int add_one(int* at) { return (*at)++; }

// ---- matrix products of a warp ----

// The words of the lanes of a quad, in their order: one of row lane / 4 of a fragment.
inline void quad_words(u32 word, u32 (&row)[4]) {
  for (int i = 0; i < 4; ++i) row[i] = emulated_exchange(word, emulated_lane() / 4 * 4 + i);
}
// All words of a column of a fragment of b: those of lanes 4 column ... 4 column + 3.
inline void column_words(u32 word, int column, u32 (&words)[4]) {
  for (int i = 0; i < 4; ++i) words[i] = emulated_exchange(word, column * 4 + i);
}

// d(16 x 8) += a * b, where dot(words of a row, words of a column, sum) adds up what four words have. `halves`: how
// many fragments of four words there are along the rows.
template <class T, int halves, class Dot>
void multiply_fragments(T (&d)[4], const u32 (&a)[2 * halves], const u32 (&b)[halves], Dot&& dot) {
  const int first = emulated_lane() % 4 * 2;
  for (int h = 0; h < halves; ++h) {
    u32 rows[2][4], columns[2][4];
    for (int r = 0; r < 2; ++r) quad_words(a[2 * h + r], rows[r]);
    for (int c = 0; c < 2; ++c) column_words(b[h], first + c, columns[c]);
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

inline void multiply_halves(float (&d)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  const u32 a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
  multiply_fragments<float, 2>(d, a, b, dot_halves);
}
inline void multiply_32(int (&d)[4], const int (&a)[4], const int (&b)[2]) {
  const u32 words[4] = {u32(a[0]), u32(a[1]), u32(a[2]), u32(a[3])}, columns[2] = {u32(b[0]), u32(b[1])};
  multiply_fragments<int, 2>(d, words, columns, dot_bytes);
}
inline void multiply_16(int (&d)[4], int a0, int a1, int b0) {
  const u32 words[2] = {u32(a0), u32(a1)}, columns[1] = {u32(b0)};
  multiply_fragments<int, 1>(d, words, columns, dot_bytes);
}

inline uint4 load_turned(const void* row, int n_bytes = 0) {
  u32 words[4];
  for (int matrix = 0; matrix < 4; ++matrix) {
    u32 halves[2];
    for (int i = 0; i < 2; ++i) {
      const int lane = matrix * 8 + emulated_lane() % 4 * 2 + i;
      const void* its_row = emulated_from_lane(static_cast<const u8*>(row) + n_bytes, lane);
      halves[i] = static_cast<const u16*>(its_row)[emulated_lane() / 4];
    }
    words[matrix] = halves[0] | halves[1] << 16;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace zinc::simt
