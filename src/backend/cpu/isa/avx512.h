// The vector abstraction on x86 with AVX-512 (F, BW, VL, DQ) and VNNI. One logical width everywhere: 16 floats, 16
// int32, 64 bytes; every instruction set does the same operations in the same order, so results are bit-identical.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define ZINC_ISA avx512

namespace zinc::cpu::ZINC_ISA {

using F = __m512;   // 16 floats
using I = __m512i;  // 16 int32
using B = __m512i;  // 64 bytes

inline constexpr int kTileTokens = 8;  // tokens multiplied together, limited by registers

inline F f_zero() { return _mm512_setzero_ps(); }
inline F f_set(float x) { return _mm512_set1_ps(x); }
inline F f_load(const float* p) { return _mm512_loadu_ps(p); }
inline void f_store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline F f_load_half(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// 16 unsigned E4M3 numbers, without NaN, times 2^-8: their bits are those of an f16 after a shift.
inline F f_load_e4m3(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 7));
}
inline F f_load_bfloat(const uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
inline F f_add(F a, F b) { return _mm512_add_ps(a, b); }
inline F f_sub(F a, F b) { return _mm512_sub_ps(a, b); }
inline F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F f_div(F a, F b) { return _mm512_div_ps(a, b); }
inline F f_max(F a, F b) { return _mm512_max_ps(a, b); }
inline F f_min(F a, F b) { return _mm512_min_ps(a, b); }
inline F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }    // a*b + c
inline F f_fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a*b
inline F f_abs(F a) { return _mm512_abs_ps(a); }
inline F f_round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT); }
inline F f_scale_exp2(F a, I n) {  // a * 2^n, |n| < 127
  return _mm512_mul_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23)));
}
inline F f_below(F a, F limit, F if_below, F otherwise) {  // a < limit ? if_below : otherwise
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, limit, _CMP_LT_OQ), otherwise, if_below);
}
// Lanes 8 apart, then 4, 2, 1: the same reduction tree in every instruction set.
inline float f_sum(F a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
inline float f_first(F a) { return _mm512_cvtss_f32(a); }
inline float f_reduce_max(F a) { return _mm512_reduce_max_ps(a); }

inline I i_zero() { return _mm512_setzero_si512(); }
inline I i_set(int32_t x) { return _mm512_set1_epi32(x); }
inline F i_to_f(I a) { return _mm512_cvtepi32_ps(a); }
inline I f_to_i(F a) { return _mm512_cvtps_epi32(a); }
inline I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
inline I i_max(I a, I b) { return _mm512_max_epi32(a, b); }
inline int32_t i_reduce_max(I a) { return _mm512_reduce_max_epi32(a); }
inline I f_abs_bits(F a) { return _mm512_and_si512(_mm512_castps_si512(a), i_set(0x7FFFFFFF)); }
inline I i_load_u8(const uint8_t* p) {  // 16 bytes as int32
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline I i_load_s8(const int8_t* p) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void i_store_s8(int8_t* p, I a) {  // saturating
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(a));
}
inline F f_from_exponent(I e) {  // 2^(e - 128) for e = 1 .. 255; 0 for e = 0 and 1
  const I shifted =
      _mm512_slli_epi32(_mm512_sub_epi32(_mm512_max_epi32(e, _mm512_set1_epi32(1)), _mm512_set1_epi32(1)), 23);
  return _mm512_castsi512_ps(shifted);
}
inline int32_t i_sum(I a) { return _mm512_reduce_add_epi32(a); }  // REQUIRES: no overflow

inline B b_load(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline void b_store(uint8_t* p, B x) { _mm512_storeu_si512(p, x); }
inline B b_set(uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
inline B b_and(B a, B b) { return _mm512_and_si512(a, b); }
inline B b_or(B a, B b) { return _mm512_or_si512(a, b); }
// Bits cross byte boundaries: mask the result.
template <int n>
B b_shift_right(B a) {
  return _mm512_srli_epi16(a, n);
}
template <int n>
B b_shift_left(B a) {
  return _mm512_slli_epi16(a, n);
}
inline B b_low_nibbles(B x) { return b_and(x, b_set(0x0F)); }
inline B b_high_nibbles(B x) { return b_and(b_shift_right<4>(x), b_set(0x0F)); }
inline B b_table(const uint8_t* table16) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table16)));
}
inline B b_lookup(B table, B index) { return _mm512_shuffle_epi8(table, index); }  // index 0..15

// acc[lane] += dot product of w[4*lane+j] and x[j], j = 0..3; w 0..127, x signed.
inline I dot4(I acc, B w, const int8_t* x) {
  int32_t quad;
  std::memcpy(&quad, x, sizeof quad);
  return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(quad));
}
// The same for weights biased by 128 to be unsigned (format/tables.h); each instruction set removes the bias in its own
// way. Sums start at biased_start(sum of all x).
inline I biased_start(int32_t x_sum) { return i_set(-128 * x_sum); }
inline I dot4_biased(I acc, B w, const int8_t* x) { return dot4(acc, w, x); }
// acc[lane] += w[2*lane] * x[0] + w[2*lane+1] * x[1], in 16 bits: 32 bytes of unsigned w, a pair of int16 in x.
inline I dot2(I acc, const uint8_t* w, const int16_t* x) {
  int32_t pair;
  std::memcpy(&pair, x, sizeof pair);
  const I wide = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w)));
  return _mm512_dpwssd_epi32(acc, wide, _mm512_set1_epi32(pair));
}

}  // namespace zinc::cpu::ZINC_ISA
