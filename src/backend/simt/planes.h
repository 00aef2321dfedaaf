// A segment's numbers times their integer scales, exactly, as two bytes each: what integer matrix instructions can sum
// over a whole segment at once, so that no scale is applied to sums of 32.
//   scales of 0..63, numbers of 0..31:  scale = 8 a + b;  high = a * number, low = b * number
//   signed scales and numbers:          2 * scale * number = 256 * high + low, low in 0..255
// The sum over a segment of scale * number * x is then ((sum of high * x) << kPlaneShift) + sum of low * x, and twice
// that for signed scales (kPlaneFactor).
#pragma once

#include "backend/simt/panel.h"

namespace zinc::simt {

template <class F>
constexpr int kPlaneShift = F::kSignedScales ? 8 : 3;
template <class F>
constexpr float kPlaneFactor = F::kSignedScales ? 0.5f : 1.0f;

ZINC_DEVICE void signed_planes(u32 bytes, int scale, u32& high, u32& low) {
  const u32 shifted = bytes ^ 0x80808080u;  // number + 128
  // Two products a word, each in 16 bits: 2 * scale * number + 32768 is positive and below 65536.
  const u32 twice = static_cast<u32>(2 * scale), offset = static_cast<u32>(32768 - 256 * scale) * 0x00010001u;
  const u32 even = (shifted & 0x00FF00FFu) * twice + offset, odd = (shifted >> 8 & 0x00FF00FFu) * twice + offset;
  high = __byte_perm(even, odd, 0x7351u) ^ 0x80808080u;
  low = __byte_perm(even, odd, 0x6240u);
}

// The planes of a group's 32 numbers, four a word.
template <class F>
ZINC_DEVICE void planes(const typename F::Header& header, int g, const typename F::Raw& raw, u32 (&high)[8],
                        u32 (&low)[8]) {
  int w[8];
  F::words(raw, w);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int scale = header.scale(F::kHalfScales ? 2 * g + i / 4 : g);
    if constexpr (F::kSignedScales) {
      signed_planes(static_cast<u32>(w[i]), scale, high[i], low[i]);
    } else {
      high[i] = static_cast<u32>(w[i]) * static_cast<u32>(scale >> 3);
      low[i] = static_cast<u32>(w[i]) * static_cast<u32>(scale & 7);
    }
  }
}

}  // namespace zinc::simt
