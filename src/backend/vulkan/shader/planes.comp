// Weights times the integer scales of their groups, for gemm_planes.comp: 13 bits and a sign, as a plane of bytes of the low
// seven and one of what is above them (times 128). REQUIRES: integer scales. A row of planes: for each segment of 256 inputs
// the low bytes, then the high ones. A warp has a group of 32 rows. Grid: panels, segments, parts.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "panel.glsl"
#include FORMAT
#include "product.glsl"

void split_products(int word, int scale, out uint low, out uint high) {
  // Two products a word; none is negative once 8192 is added.
  uint shifted = uint(word) ^ 0x80808080u, offset = uint(8192 - 128 * scale) * 0x00010001u;
  uint even = (shifted & 0x00FF00FFu) * uint(scale) + offset, odd = (shifted >> 8 & 0x00FF00FFu) * uint(scale) + offset;
  low = (even & 0x007F007Fu) | (odd & 0x007F007Fu) << 8;
  high = uint(minus((even >> 7 & 0x007F007Fu) | (odd << 1 & 0x7F007F00u), 64u));
}

void main() {
  int panel = int(gl_WorkGroupID.x), s = int(gl_WorkGroupID.y), part = int(gl_WorkGroupID.z), g = warp_id();
  if (panel * kPanelRows >= p.parts[part].n_out) return;
  uint64_t segment = panel_at(p.parts[part], panel, 0) + uint64_t(s) * uint64_t(kSegmentBytes);
  Header header = load_header(segment, lane_id());
  int w[8];
  expand(load_group(segment, lane_id(), g), w);
  uvec4 low[2], high[2];
  [[unroll]] for (int i = 0; i < 8; ++i) {
#if HALF_SCALES
    int scale = header_scale(header, 2 * g + i / 4);
#else
    int scale = header_scale(header, g);
#endif
    uint of_low, of_high;
    split_products(w[i], scale, of_low, of_high);
    low[i / 4][i % 4] = of_low;
    high[i / 4][i % 4] = of_high;
  }
  int row = panel * kPanelRows + lane_id();
  uint64_t to = p.planes[part] + (uint64_t(row) * uint64_t(p.parts[part].n_segments) + uint64_t(s)) * uint64_t(2 * kSegmentElems);
  [[unroll]] for (int h = 0; h < 2; ++h) {
    Quads(to).at[2 * g + h] = low[h];
    Quads(to + uint64_t(kSegmentElems)).at[2 * g + h] = high[h];
  }
}
