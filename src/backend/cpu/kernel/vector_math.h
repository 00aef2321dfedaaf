// Math functions of 16 floats. Included after an instruction set's vector abstraction.
#pragma once

#include <bit>
#include <limits>

namespace zinc::cpu::ZINC_ISA {

// The largest magnitude, from the bits of all magnitudes (f_abs_bits): their order is that of the numbers, with
// infinities and NaN as the largest. NaN if there is one of those.
inline float max_magnitude(I abs_bits) {
  constexpr int32_t kInfinity = 0x7F800000;
  const int32_t bits = i_reduce_max(abs_bits);
  return bits < kInfinity ? std::bit_cast<float>(bits) : std::numeric_limits<float>::quiet_NaN();
}

// The factor from numbers up to `magnitude` to quants up to 127. 0: there is none, because they are not finite, or so
// small that it would be infinite. All quants are then 0, and the scale is empty_scale(magnitude).
inline float quant_factor(float magnitude) {
  constexpr float kSmallest = 4e-37f;
  return magnitude >= kSmallest ? 127.0f / magnitude : 0.0f;
}
inline float empty_scale(float magnitude) { return magnitude * 0.0f; }  // NaN stays NaN

// e^x: x = n ln 2 + r, a polynomial of degree 6 for e^r. Relative error below 2e-7; 0 below -87.
inline F f_exp(F x) {
  const F n = f_round(f_mul(x, f_set(1.44269504f)));
  F r = f_fnma(n, f_set(0.693359375f), x);  // ln 2 in two parts
  r = f_fnma(n, f_set(-2.12194440e-4f), r);
  F p = f_set(1.3981999507e-3f);
  p = f_fma(p, r, f_set(8.3334519073e-3f));
  p = f_fma(p, r, f_set(4.1665795894e-2f));
  p = f_fma(p, r, f_set(1.6666665459e-1f));
  p = f_fma(p, r, f_set(5.0000001201e-1f));
  p = f_fma(f_mul(r, r), p, f_add(r, f_set(1.0f)));
  const F scaled = f_scale_exp2(p, f_to_i(n));
  return f_below(x, f_set(-87.0f), f_zero(),
                 f_below(f_set(88.0f), x, f_set(std::numeric_limits<float>::infinity()), scaled));
}

inline F f_sigmoid(F x) { return f_div(f_set(1.0f), f_add(f_set(1.0f), f_exp(f_sub(f_zero(), x)))); }

// tanh x = 1 - 2 / (e^2x + 1), clamped to avoid overflow.
inline F f_tanh(F x) {
  const F clamped = f_min(f_max(x, f_set(-20.0f)), f_set(20.0f));
  const F e = f_exp(f_add(clamped, clamped));
  return f_sub(f_set(1.0f), f_div(f_set(2.0f), f_add(e, f_set(1.0f))));
}

inline F f_softcap(F x, F cap) { return f_mul(f_tanh(f_div(x, cap)), cap); }

// Calls fn(i, n) for n elements from i: 16 at a time, fewer at the end.
template <class Fn>
void for_each_16(size_t n, const Fn& fn) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) fn(i, size_t{16});
  if (i < n) fn(i, n - i);
}

inline F f_load_n(const float* p, size_t n) {
  if (n == 16) return f_load(p);
  float padded[16] = {};
  std::memcpy(padded, p, n * sizeof(float));
  return f_load(padded);
}

inline void f_store_n(float* p, F x, size_t n) {
  if (n == 16) return f_store(p, x);
  float padded[16];
  f_store(padded, x);
  std::memcpy(p, padded, n * sizeof(float));
}

}  // namespace zinc::cpu::ZINC_ISA
