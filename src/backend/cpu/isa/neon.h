// The vector abstraction on aarch64 with the dot product extension (FEAT_DotProd): the 16 lanes of isa/avx512.h as four
// quarters, the same operations in the same order.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#define ZINC_ISA neon

namespace zinc::cpu::ZINC_ISA {

struct F {
  float32x4_t a, b, c, d;
};
struct I {
  int32x4_t a, b, c, d;
};
struct B {
  uint8x16_t a, b, c, d;
};

inline constexpr int kTileTokens = 2;  // accumulators of two groups and two tokens use 16 of the 32 registers

template <class To, class Fn, class... From>
To quarters(const Fn& fn, From... x) {
  return {fn(x.a...), fn(x.b...), fn(x.c...), fn(x.d...)};
}
template <class To, class Quarter>
To repeated(Quarter x) {
  return {x, x, x, x};
}

inline F f_zero() { return repeated<F>(vdupq_n_f32(0)); }
inline F f_set(float x) { return repeated<F>(vdupq_n_f32(x)); }
inline F f_load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
inline void f_store(float* p, F x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
inline F f_load_half(const uint16_t* p) {
  const auto widen = [](const uint16_t* h) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(h))); };
  return {widen(p), widen(p + 4), widen(p + 8), widen(p + 12)};
}
// 16 unsigned E4M3 numbers, without NaN, times 2^-8: their bits are those of an f16 after a shift.
inline F f_load_e4m3(const uint8_t* p) {
  uint16_t halves[16];
  vst1q_u16(halves, vshll_n_u8(vld1_u8(p), 7));
  vst1q_u16(halves + 8, vshll_n_u8(vld1_u8(p + 8), 7));
  return f_load_half(halves);
}
inline F f_load_bfloat(const uint16_t* p) {
  const auto widen = [](const uint16_t* h) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(h), 16)); };
  return {widen(p), widen(p + 4), widen(p + 8), widen(p + 12)};
}
inline F f_add(F x, F y) {
  return quarters<F>([](auto p, auto q) { return vaddq_f32(p, q); }, x, y);
}
inline F f_sub(F x, F y) {
  return quarters<F>([](auto p, auto q) { return vsubq_f32(p, q); }, x, y);
}
inline F f_mul(F x, F y) {
  return quarters<F>([](auto p, auto q) { return vmulq_f32(p, q); }, x, y);
}
inline F f_div(F x, F y) {
  return quarters<F>([](auto p, auto q) { return vdivq_f32(p, q); }, x, y);
}
// With x86 semantics: the second operand for equal zeros or if one is NaN. FMAX and FMIN differ.
inline float32x4_t larger(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
inline float32x4_t smaller(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
inline F f_max(F x, F y) { return quarters<F>(larger, x, y); }
inline F f_min(F x, F y) { return quarters<F>(smaller, x, y); }
inline F f_fma(F x, F y, F z) {
  return quarters<F>([](auto p, auto q, auto r) { return vfmaq_f32(r, p, q); }, x, y, z);
}
inline F f_fnma(F x, F y, F z) {
  return quarters<F>([](auto p, auto q, auto r) { return vfmsq_f32(r, p, q); }, x, y, z);
}
inline F f_abs(F x) {
  return quarters<F>([](auto q) { return vabsq_f32(q); }, x);
}
inline F f_round(F x) {
  return quarters<F>([](auto q) { return vrndnq_f32(q); }, x);
}
inline F f_scale_exp2(F x, I n) {  // x * 2^n, |n| < 127
  const auto scaled = [](auto q, auto e) {
    return vmulq_f32(q, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(e, vdupq_n_s32(127)), 23)));
  };
  return quarters<F>(scaled, x, n);
}
inline F f_below(F x, F limit, F if_below, F otherwise) {  // x < limit ? if_below : otherwise
  const auto choose = [](auto q, auto l, auto yes, auto no) { return vbslq_f32(vcltq_f32(q, l), yes, no); };
  return quarters<F>(choose, x, limit, if_below, otherwise);
}
inline float f_sum(F x) {
  const float32x4_t q = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  return vpadds_f32(vadd_f32(vget_low_f32(q), vget_high_f32(q)));
}
inline float f_first(F x) { return vgetq_lane_f32(x.a, 0); }
inline float f_reduce_max(F x) {
  const float32x4_t q = larger(larger(x.a, x.c), larger(x.b, x.d));
  const float32x4_t d = larger(q, vextq_f32(q, q, 2));
  return vgetq_lane_f32(larger(d, vextq_f32(d, d, 1)), 0);
}

inline I i_zero() { return repeated<I>(vdupq_n_s32(0)); }
inline I i_set(int32_t x) { return repeated<I>(vdupq_n_s32(x)); }
inline F i_to_f(I x) {
  return quarters<F>([](auto q) { return vcvtq_f32_s32(q); }, x);
}
inline I f_to_i(F x) {
  return quarters<I>([](auto q) { return vcvtnq_s32_f32(q); }, x);
}
inline I i_add(I x, I y) {
  return quarters<I>([](auto p, auto q) { return vaddq_s32(p, q); }, x, y);
}
inline I i_max(I x, I y) {
  return quarters<I>([](auto p, auto q) { return vmaxq_s32(p, q); }, x, y);
}
inline int32_t i_reduce_max(I x) { return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.a, x.b), vmaxq_s32(x.c, x.d))); }
inline I f_abs_bits(F x) {
  return quarters<I>([](auto q) { return vreinterpretq_s32_f32(vabsq_f32(q)); }, x);
}
inline I i_from_s16(int16x8_t low, int16x8_t high) {
  return {vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)};
}
inline int16x8_t s16_from_u8(uint8x8_t x) { return vreinterpretq_s16_u16(vmovl_u8(x)); }
inline I i_load_u8(const uint8_t* p) { return i_from_s16(s16_from_u8(vld1_u8(p)), s16_from_u8(vld1_u8(p + 8))); }
inline I i_load_s8(const int8_t* p) { return i_from_s16(vmovl_s8(vld1_s8(p)), vmovl_s8(vld1_s8(p + 8))); }
inline void i_store_s8(int8_t* p, I x) {  // saturating
  const int16x8_t low = vcombine_s16(vqmovn_s32(x.a), vqmovn_s32(x.b));
  const int16x8_t high = vcombine_s16(vqmovn_s32(x.c), vqmovn_s32(x.d));
  vst1q_s8(p, vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
}
inline F f_from_exponent(I e) {  // 2^(e - 128) for e = 1 .. 255; 0 for e = 0 and 1
  const auto power = [](auto n) {
    const int32x4_t one = vdupq_n_s32(1);
    return vreinterpretq_f32_s32(vshlq_n_s32(vsubq_s32(vmaxq_s32(n, one), one), 23));
  };
  return quarters<F>(power, e);
}
inline int32_t i_sum(I x) { return vaddvq_s32(vaddq_s32(vaddq_s32(x.a, x.b), vaddq_s32(x.c, x.d))); }

inline B b_load(const uint8_t* p) { return {vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}; }
inline void b_store(uint8_t* p, B x) {
  vst1q_u8(p, x.a);
  vst1q_u8(p + 16, x.b);
  vst1q_u8(p + 32, x.c);
  vst1q_u8(p + 48, x.d);
}
inline B b_set(uint8_t x) { return repeated<B>(vdupq_n_u8(x)); }
inline B b_and(B x, B y) {
  return quarters<B>([](auto p, auto q) { return vandq_u8(p, q); }, x, y);
}
inline B b_or(B x, B y) {
  return quarters<B>([](auto p, auto q) { return vorrq_u8(p, q); }, x, y);
}
// On other instruction sets bits cross byte boundaries: mask the result.
template <int n>
B b_shift_right(B x) {
  if constexpr (n == 0) {
    return x;
  } else {
    return quarters<B>([](auto q) { return vshrq_n_u8(q, n); }, x);
  }
}
template <int n>
B b_shift_left(B x) {
  return quarters<B>([](auto q) { return vshlq_n_u8(q, n); }, x);
}
inline B b_low_nibbles(B x) { return b_and(x, b_set(0x0F)); }
inline B b_high_nibbles(B x) { return b_shift_right<4>(x); }
inline B b_table(const uint8_t* table16) { return repeated<B>(vld1q_u8(table16)); }
inline B b_lookup(B table, B index) {  // index 0..15
  return quarters<B>([](auto t, auto i) { return vqtbl1q_u8(t, i); }, table, index);
}

inline int8x8_t load_quad(const int8_t* x) {  // the first four lanes
  uint32_t quad;
  std::memcpy(&quad, x, sizeof quad);
  return vcreate_s8(quad);
}
// acc[lane] += dot product of w[4*lane+j] and x[j], j = 0..3; w 0..127, x signed.
inline I dot4(I acc, B w, const int8_t* x) {
  const int8x8_t quad = load_quad(x);
  const auto add = [quad](auto sum, auto bytes) { return vdotq_lane_s32(sum, vreinterpretq_s8_u8(bytes), quad, 0); };
  return quarters<I>(add, acc, w);
}
// The same for weights biased by 128; the bias is subtracted here, so sums start at zero.
inline I biased_start(int32_t) { return i_zero(); }
inline I dot4_biased(I acc, B w, const int8_t* x) {
  const int8x8_t quad = load_quad(x);
  const uint8x16_t top = vdupq_n_u8(0x80);
  const auto add = [=](auto sum, auto bytes) {
    return vdotq_lane_s32(sum, vreinterpretq_s8_u8(veorq_u8(bytes, top)), quad, 0);
  };
  return quarters<I>(add, acc, w);
}
// acc[lane] += w[2*lane] * x[0] + w[2*lane+1] * x[1]: 32 bytes of unsigned w, a pair of int16 in x.
inline I dot2(I acc, const uint8_t* w, const int16_t* x) {
  const uint8x16x2_t split = vld2q_u8(w);
  const auto add = [](I sum, uint8x16_t bytes, int16_t factor) -> I {
    const int16x8_t low = s16_from_u8(vget_low_u8(bytes)), high = s16_from_u8(vget_high_u8(bytes));
    return {vmlal_n_s16(sum.a, vget_low_s16(low), factor), vmlal_high_n_s16(sum.b, low, factor),
            vmlal_n_s16(sum.c, vget_low_s16(high), factor), vmlal_high_n_s16(sum.d, high, factor)};
  };
  return add(add(acc, split.val[0], x[0]), split.val[1], x[1]);
}

}  // namespace zinc::cpu::ZINC_ISA
