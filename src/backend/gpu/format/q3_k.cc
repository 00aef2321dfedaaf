#include "backend/gpu/format/pack.h"

namespace zinc::gpu {
namespace {

// Of a half group of 16: six bits minus 32. The file has the low nibbles in eight bytes, the top bits in four.
int q3_k_scale(const std::byte* scales, int half_group) {
  const int low = byte_at(scales, half_group % 8) >> half_group / 8 * 4 & 15;
  const int top = byte_at(scales, 8 + half_group % 4) >> half_group / 4 * 2 & 3;
  return (low | top << 4) - 32;
}

void pack_q3_k(const std::byte* from, int, std::byte* segment, int row) {
  for (int h = 0; h < 2 * kSegmentGroups; ++h) {
    piece(segment, 0, 16, row)[h] = static_cast<std::byte>(q3_k_scale(from + 96, h));
  }
  std::memcpy(piece(segment, 16, 4, row), from + 108, 2);
  for (int g = 0; g < kSegmentGroups; ++g) {
    uint32_t low[2] = {0, 0}, top = 0;
    for (int e = 0; e < kGroupElems; ++e) {
      const uint32_t bits = byte_at(from, 32 + g / 4 * 32 + e) >> g % 4 * 2 & 3;
      low[e / 16] |= bits << (e % 4 * 8 + e % 16 / 4 * 2);
      top |= static_cast<uint32_t>(byte_at(from, e) >> g & 1) << (e % 4 * 8 + e / 4);
    }
    const int begin = 20 + g * 12;
    std::memcpy(piece(segment, begin, 8, row), low, 8);
    std::memcpy(piece(segment, begin + 8, 4, row), &top, 4);
  }
}

}  // namespace

extern const PanelFormat k_panel_q3_k;
const PanelFormat k_panel_q3_k = {.name = "q3_k",
                                  .header_bytes = 20,
                                  .group_bytes = 12,
                                  .q8_block = 256,
                                  .block_elems = 256,
                                  .block_bytes = 110,
                                  .pack = pack_q3_k};

}  // namespace zinc::gpu
