// High and low byte planes of weight q times integer scale, exactly: int8 MMA can accumulate them over a whole segment,
// without applying a scale per group.
//   scale in 0..63, q in 0..31:  scale = 8 a + b;  high = a * q, low = b * q
//   signed scale and q:          2 * scale * q = 256 * high + low, low in 0..255
// The sum over a segment of scale * q * x is then ((sum of high * x) << kPlaneShift) + sum of low * x, and twice that
// for signed scales (kPlaneFactor).
#pragma once

#include "backend/simt/panel.h"

namespace zinc::simt {

template <class F>
constexpr int kPlaneShift = F::kSignedScales ? 8 : 3;
template <class F>
constexpr float kPlaneFactor = F::kSignedScales ? 0.5f : 1.0f;

// raw: four q + bias, unsigned.
template <int bias>
ZINC_DEVICE void signed_planes(u32 raw, int scale, u32& high, u32& low) {
  // Two products per word, 16 bits each: 2 * scale * q + 32768 is positive and below 65536.
  const u32 twice = static_cast<u32>(2 * scale), offset = static_cast<u32>(32768 - 2 * bias * scale) * 0x00010001u;
  const u32 even = (raw & 0x00FF00FFu) * twice + offset, odd = __byte_perm(raw, 0, 0x4341u) * twice + offset;
  high = __byte_perm(even, odd, 0x7351u) ^ 0x80808080u;
  low = __byte_perm(even, odd, 0x6240u);
}

// Byte planes of four weights of group g, in its half `half`, from F::raw_fragment().
template <class F>
ZINC_DEVICE void byte_planes(const typename F::Header& header, int g, int half, int word, u32& high, u32& low) {
  if constexpr (F::kSignedScales) {
    signed_planes<F::kBias>(static_cast<u32>(word), header.scale(F::kHalfScales ? 2 * g + half : g), high, low);
  } else {
    const u32 scales = header.four_scales(g / 4), selector = 0x4440u + static_cast<u32>(g % 4);
    high = static_cast<u32>(word) * __byte_perm(scales >> 3 & 0x07070707u, 0, selector);
    low = static_cast<u32>(word) * __byte_perm(scales & 0x07070707u, 0, selector);
  }
}

}  // namespace zinc::simt
