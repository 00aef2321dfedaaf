#include "backend/gpu/format/pack.h"

namespace zinc::gpu {
namespace {

void pack_q6_k(const std::byte* from, int, std::byte* segment, int row) {
  std::memcpy(piece(segment, 0, 16, row), from + 192, 16);
  std::memcpy(piece(segment, 16, 4, row), from + 208, 2);
  for (int g = 0; g < kSegmentGroups; ++g) {
    const int begin = 20 + g * 24, quarter = g % 4;
    pack_nibbles(piece(segment, begin, 16, row),
                 [&](int e) { return byte_at(from, g / 4 * 64 + quarter % 2 * 32 + e) >> quarter / 2 * 4 & 15; });
    uint32_t top[2] = {0, 0};
    for (int e = 0; e < kGroupElems; ++e) {
      const uint32_t bits = byte_at(from, 128 + g / 4 * 32 + e) >> quarter * 2 & 3;
      top[e / 16] |= bits << (e % 4 * 8 + e % 16 / 4 * 2);
    }
    std::memcpy(piece(segment, begin + 16, 8, row), top, 8);
  }
}

}  // namespace

extern const PanelFormat k_panel_q6_k;
const PanelFormat k_panel_q6_k = {.name = "q6_k",
                                  .header_bytes = 20,
                                  .group_bytes = 24,
                                  .q8_block = 256,
                                  .block_elems = 256,
                                  .block_bytes = 210,
                                  .pack = pack_q6_k};

}  // namespace zinc::gpu
