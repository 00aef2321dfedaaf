#include "quantize/block_quantizer.h"
#include "quantize/lanes.h"
#include "quantize/level_search.h"
#include "tensor/half.h"

namespace zinc {

extern const Format k_iq4_xs;

namespace {

constexpr size_t kGroups = 8;
// Codes tried for the largest scale.
constexpr float kTopCodes[] = {-32, -31.5F, -31, -30.5F, -30, -29.5F, -29, -28.5F, 31, 30.5F, 30, 29.5F, 29};

struct Block {  // tensor/format/iq4_xs.cc
  static constexpr size_t kElems = 256;
  uint16_t d;
  uint16_t scales_high;
  uint8_t scales_low[4];
  uint8_t q[128];
};

// Scale codes -32 ... 31 of the groups, for one d.
struct Scales {
  std::array<float, kGroups> code{};
  float p = 0;  // with the codes multiplied in
  float q = 0;
  float gain = 0;
};

float nearest_code(float scale, float d) { return std::clamp(round_to_integer(scale / d), -32.0F, 31.0F); }

// `reach`: the codes above and below the nearest that are tried too.
Scales choose_scales(std::span<const LevelGroup> groups, std::span<const float> best_scale, float d, float reach,
                     const NearestLevel& nearest) {
  Scales scales;
  for (size_t g = 0; g < kGroups; ++g) {
    const float middle = nearest_code(best_scale[g], d);
    LevelGroup::Sums best;
    for (float c = std::max(-32.0F, middle - reach); c <= std::min(31.0F, middle + reach); c += 1) {
      const LevelGroup::Sums sums = groups[g].evaluate(nearest, d * c);
      if (sums.gain(d * c) <= best.gain(d * scales.code[g])) continue;
      best = sums;
      scales.code[g] = c;
    }
    const float c = scales.code[g];
    scales.p += c * best.p;
    scales.q += c * c * best.q;
    scales.gain += best.gain(d * c);
  }
  return scales;
}

float rounded(float d) { return half_to_float(float_to_half(std::clamp(d, -65504.0F, 65504.0F))); }

Block pack(std::span<const LevelGroup> groups, const Scales& scales, float d, const NearestLevel& nearest) {
  Block block{};
  block.d = float_to_half(d);
  for (size_t g = 0; g < kGroups; ++g) {
    const uint32_t code = static_cast<uint32_t>(static_cast<int>(scales.code[g]) + 32);
    block.scales_low[g / 2] = static_cast<uint8_t>(block.scales_low[g / 2] | (code & 15) << g % 2 * 4);
    block.scales_high = static_cast<uint16_t>(block.scales_high | code >> 4 << 2 * g);
    groups[g].take_codes(nearest, d * scales.code[g], block.q + g * LevelGroup::kElems / 2);
  }
  return block;
}

Block quantize_block(std::span<const float, 256> x, const RowWeights& importance, size_t begin) {
  static const NearestLevel nearest;
  std::array<float, 256> w;
  importance.fill<256>(x, begin, 2, w);
  std::array<LevelGroup, kGroups> groups;
  std::array<float, kGroups> best_scale;
  float max_scale = 0;
  for (size_t g = 0; g < kGroups; ++g) {
    groups[g].fill(&x[g * LevelGroup::kElems], &w[g * LevelGroup::kElems]);
    best_scale[g] = groups[g].best_scale(nearest);
    if (std::abs(best_scale[g]) > std::abs(max_scale)) max_scale = best_scale[g];
  }
  float d = 0;
  float best_gain = 0;
  for (const float top : kTopCodes) {
    const float candidate = rounded(max_scale / top);
    if (candidate == 0) continue;
    const float gain = choose_scales(groups, best_scale, candidate, 0, nearest).gain;
    if (gain <= best_gain) continue;
    best_gain = gain;
    d = candidate;
  }
  if (d == 0) return {};
  Scales scales = choose_scales(groups, best_scale, d, 1, nearest);
  const float refit = rounded(scales.q > 0 ? scales.p / scales.q : 0);
  const Scales refitted = choose_scales(groups, best_scale, refit == 0 ? d : refit, 1, nearest);
  if (refitted.gain > scales.gain) {
    scales = refitted;
    d = refit;
  }
  return pack(groups, scales, d, nearest);
}

}  // namespace

extern const Quantizer k_quantizer_iq4_xs = {.format = k_iq4_xs, .quantize = quantize_row<Block, quantize_block>};

}  // namespace zinc
