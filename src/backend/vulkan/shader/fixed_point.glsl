// Weights of tokens in units of 2^-32, and fractions of their sums, with the bits of the host (sample/softmax_exp.h). Float
// additions and multiplications are correctly rounded on every device; exp, division and doubles are not used.

// e^((logit - best) * inv_temperature): the operations of the host's token_weight().
uint64_t fixed_point_weight(float logit, float best, float inv_temperature) {
  precise float distance = (logit - best) * inv_temperature;
  if (!(distance > -86.0)) return 0ul;
  const float kRound = 12582912.0, kCoarse = 0.001953125;
  precise float shifted = distance * 1.44269504 + kRound;
  precise float n = shifted - kRound;
  precise float r = (distance - n * 0.693145752) - n * 1.42860677e-6;
  precise float e = 1.0 / 720.0;
  e = e * r + 1.0 / 120.0;
  e = e * r + 1.0 / 24.0;
  e = e * r + 1.0 / 6.0;
  e = e * r + 0.5;
  e = e * r + 1.0;
  e = e * r + 1.0;
  float weight = uintBitsToFloat(floatBitsToUint(e) + (floatBitsToUint(shifted) << 23));
  precise float rounded = weight + kCoarse;
  rounded = rounded - kCoarse;
  if (weight >= kCoarse) rounded = weight;
  return rounded < 1.0 ? uint64_t(uint(rounded * 4294967296.0)) : 1ul << 32;
}

// mass * mantissa * 2^-shift as a double would hold it: 53 bits, ties to even.
struct RoundedProduct {
  uint64_t whole;
  bool has_fraction;
};
// REQUIRES: mass and mantissa are below 2^53, and the product is at most mass.
RoundedProduct rounded_product(uint64_t mass, uint64_t mantissa, int shift) {
  const uint64_t kLow = 0xFFFFFFFFul;
  uint64_t low = (mass & kLow) * (mantissa & kLow);
  uint64_t middle = (mass >> 32) * (mantissa & kLow) + (mass & kLow) * (mantissa >> 32) + (low >> 32);
  uint64_t high = (mass >> 32) * (mantissa >> 32) + (middle >> 32);
  low = middle << 32 | low & kLow;
  bool half_unit = false, below_half = false;  // of the bits shifted out
  for (; high != 0ul || low >> 53 != 0ul; --shift) {
    below_half = below_half || half_unit;
    half_unit = (low & 1ul) != 0ul;
    low = low >> 1 | high << 63;
    high >>= 1;
  }
  if (half_unit && (below_half || (low & 1ul) != 0ul)) low += 1ul;
  uint64_t whole = low >> min(shift, 63);
  return RoundedProduct(whole, whole << min(shift, 63) != low);
}

// Fractions in [0, 1), by the bits of a float and of a double.
RoundedProduct times_float(uint64_t mass, uint bits) {
  int exponent = int(bits >> 23);
  uint mantissa = bits & 0x7FFFFFu | (exponent > 0 ? 0x800000u : 0u);
  return rounded_product(mass, uint64_t(mantissa), 150 - max(exponent, 1));
}
RoundedProduct times_double(uint64_t mass, uint high, uint low) {
  int exponent = int(high >> 20);
  uint mantissa_high = high & 0xFFFFFu | (exponent > 0 ? 0x100000u : 0u);
  return rounded_product(mass, packUint2x32(uvec2(low, mantissa_high)), 1075 - max(exponent, 1));
}
