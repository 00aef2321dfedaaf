#include "backend/gpu/format/pack.h"

namespace zinc::gpu {
namespace {

void pack_q4_k(const std::byte* from, int, std::byte* segment, int row) {
  std::memcpy(piece(segment, 0, 16, row), from, 16);
  for (int g = 0; g < kSegmentGroups; ++g) {
    const std::byte* q = from + 16 + g / 2 * 32;
    pack_nibbles(piece(segment, 16 + g * 16, 16, row), [&](int e) { return byte_at(q, e) >> g % 2 * 4 & 15; });
  }
}

}  // namespace

extern const PanelFormat k_panel_q4_k;
const PanelFormat k_panel_q4_k = {.name = "q4_k",
                                  .header_bytes = 16,
                                  .group_bytes = 16,
                                  .q8_block = 256,
                                  .block_elems = 256,
                                  .block_bytes = 144,
                                  .pack = pack_q4_k,
                                  .has_minima = true};

}  // namespace zinc::gpu
