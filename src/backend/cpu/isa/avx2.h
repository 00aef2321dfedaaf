// The vector abstraction on x86 with AVX2, FMA and F16C: the 16 lanes of isa/avx512.h as two halves, the same
// operations in the same order.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define ZINC_ISA avx2

namespace zinc::cpu::ZINC_ISA {

struct F {
  __m256 a, b;
};
struct I {
  __m256i a, b;
};
using B = I;

inline constexpr int kTileTokens = 2;  // limited by 16 registers

inline F f_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F f_set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F f_load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void f_store(float* p, F x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
inline __m128i load_128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline F f_load_half(const uint16_t* p) { return {_mm256_cvtph_ps(load_128(p)), _mm256_cvtph_ps(load_128(p + 8))}; }
// 16 unsigned E4M3 numbers, without NaN, times 2^-8: their bits are those of an f16 after a shift.
inline F f_load_e4m3(const uint8_t* p) {
  const __m256i halves = _mm256_slli_epi16(_mm256_cvtepu8_epi16(load_128(p)), 7);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
inline F f_load_bfloat(const uint16_t* p) {
  const auto widen = [](__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); };
  return {widen(load_128(p)), widen(load_128(p + 8))};
}
inline F f_add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline F f_sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline F f_mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline F f_div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline F f_max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline F f_min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline F f_fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline F f_fnma(F x, F y, F z) { return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)}; }
inline F f_abs(F x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline F f_round(F x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kNearest), _mm256_round_ps(x.b, kNearest)};
}
inline F f_scale_exp2(F x, I n) {  // x * 2^n, |n| < 127
  const auto power = [](__m256i e) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23));
  };
  return {_mm256_mul_ps(x.a, power(n.a)), _mm256_mul_ps(x.b, power(n.b))};
}
inline F f_below(F x, F limit, F if_below, F otherwise) {  // x < limit ? if_below : otherwise
  return {_mm256_blendv_ps(otherwise.a, if_below.a, _mm256_cmp_ps(x.a, limit.a, _CMP_LT_OQ)),
          _mm256_blendv_ps(otherwise.b, if_below.b, _mm256_cmp_ps(x.b, limit.b, _CMP_LT_OQ))};
}
inline float f_sum(F x) {
  const __m256 h = _mm256_add_ps(x.a, x.b);
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
inline float f_first(F x) { return _mm256_cvtss_f32(x.a); }
inline float f_reduce_max(F x) {
  const __m256 h = _mm256_max_ps(x.a, x.b);
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}

inline I i_zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline I i_set(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline F i_to_f(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline I f_to_i(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline I i_add(I x, I y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline I i_max(I x, I y) { return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)}; }
inline int32_t i_reduce_max(I x) {
  const __m256i h = _mm256_max_epi32(x.a, x.b);
  __m128i q = _mm_max_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
  q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xB1)));
}
inline I f_abs_bits(F x) {
  const __m256i all = _mm256_set1_epi32(0x7FFFFFFF);
  return {_mm256_and_si256(_mm256_castps_si256(x.a), all), _mm256_and_si256(_mm256_castps_si256(x.b), all)};
}
inline I i_load_u8(const uint8_t* p) {
  const __m128i all = load_128(p);
  return {_mm256_cvtepu8_epi32(all), _mm256_cvtepu8_epi32(_mm_srli_si128(all, 8))};
}
inline I i_load_s8(const int8_t* p) {
  const __m128i all = load_128(p);
  return {_mm256_cvtepi8_epi32(all), _mm256_cvtepi8_epi32(_mm_srli_si128(all, 8))};
}
inline void i_store_s8(int8_t* p, I x) {  // saturating
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline F f_from_exponent(I e) {  // 2^(e - 128) for e = 1 .. 255; 0 for e = 0 and 1
  const auto power = [](__m256i n) {
    const __m256i one = _mm256_set1_epi32(1);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_sub_epi32(_mm256_max_epi32(n, one), one), 23));
  };
  return {power(e.a), power(e.b)};
}
inline int32_t i_sum(I x) {
  const __m256i h = _mm256_add_epi32(x.a, x.b);
  __m128i q = _mm_add_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
  q = _mm_add_epi32(q, _mm_shuffle_epi32(q, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(q, _mm_shuffle_epi32(q, 0xB1)));
}

inline __m256i load_256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline B b_load(const uint8_t* p) { return {load_256(p), load_256(p + 32)}; }
inline void b_store(uint8_t* p, B x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), x.b);
}
inline B b_set(uint8_t x) {
  const __m256i all = _mm256_set1_epi8(static_cast<char>(x));
  return {all, all};
}
inline B b_and(B x, B y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
inline B b_or(B x, B y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
// Bits cross byte boundaries: mask the result.
template <int n>
B b_shift_right(B x) {
  return {_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
}
template <int n>
B b_shift_left(B x) {
  return {_mm256_slli_epi16(x.a, n), _mm256_slli_epi16(x.b, n)};
}
inline B b_low_nibbles(B x) { return b_and(x, b_set(0x0F)); }
inline B b_high_nibbles(B x) { return b_and(b_shift_right<4>(x), b_set(0x0F)); }
inline B b_table(const uint8_t* table16) {
  const __m256i both = _mm256_broadcastsi128_si256(load_128(table16));
  return {both, both};
}
inline B b_lookup(B table, B index) {  // index 0..15
  return {_mm256_shuffle_epi8(table.a, index.a), _mm256_shuffle_epi8(table.b, index.b)};
}

// acc[lane] += dot product of w[4*lane+j] and x[j], j = 0..3; w 0..127, x signed: the sum of two fits into 16 bits.
inline I dot4(I acc, B w, const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x, sizeof quad);
  const __m256i all = _mm256_set1_epi32(quad), ones = _mm256_set1_epi16(1);
  const auto add = [&](__m256i sum, __m256i bytes) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, all), ones));
  };
  return {add(acc.a, w.a), add(acc.b, w.b)};
}
// The same for weights biased by 128, up to 255: even and odd bytes are widened to 16 bits, because the byte multiply
// of this instruction set would saturate.
inline I biased_start(int32_t x_sum) { return i_set(-128 * x_sum); }
inline I dot4_biased(I acc, B w, const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x, sizeof quad);
  const __m256i all = _mm256_set1_epi32(quad), low = _mm256_set1_epi16(0xFF);
  const __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(all, 8), 8), odd = _mm256_srai_epi16(all, 8);
  const auto add = [&](__m256i sum, __m256i bytes) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_and_si256(bytes, low), even));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_srli_epi16(bytes, 8), odd));
  };
  return {add(acc.a, w.a), add(acc.b, w.b)};
}
// acc[lane] += w[2*lane] * x[0] + w[2*lane+1] * x[1]: 32 bytes of unsigned w, a pair of int16 in x.
inline I dot2(I acc, const uint8_t* w, const int16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof pair);
  const __m256i both = _mm256_set1_epi32(pair);
  return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(_mm256_cvtepu8_epi16(load_128(w)), both)),
          _mm256_add_epi32(acc.b, _mm256_madd_epi16(_mm256_cvtepu8_epi16(load_128(w + 16)), both))};
}

}  // namespace zinc::cpu::ZINC_ISA
