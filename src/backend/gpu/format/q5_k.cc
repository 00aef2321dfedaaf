#include "backend/gpu/format/pack.h"

namespace zinc::gpu {
namespace {

void pack_q5_k(const std::byte* from, int, std::byte* segment, int row) {
  std::memcpy(piece(segment, 0, 16, row), from, 16);
  for (int g = 0; g < kSegmentGroups; ++g) {
    const std::byte* q = from + 48 + g / 2 * 32;
    const int begin = 16 + g * 20;
    pack_nibbles(piece(segment, begin, 16, row), [&](int e) { return byte_at(q, e) >> g % 2 * 4 & 15; });
    uint32_t bits = 0;
    for (int e = 0; e < kGroupElems; ++e) bits |= static_cast<uint32_t>(byte_at(from, 16 + e) >> g & 1) << e;
    std::memcpy(piece(segment, begin + 16, 4, row), &bits, 4);
  }
}

}  // namespace

extern const PanelFormat k_panel_q5_k;
const PanelFormat k_panel_q5_k = {.name = "q5_k",
                                  .header_bytes = 16,
                                  .group_bytes = 20,
                                  .q8_block = 256,
                                  .block_elems = 256,
                                  .block_bytes = 176,
                                  .pack = pack_q5_k,
                                  .has_minima = true};

}  // namespace zinc::gpu
