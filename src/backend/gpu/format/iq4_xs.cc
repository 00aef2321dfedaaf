#include "backend/gpu/format/pack.h"

namespace zinc::gpu {
namespace {

void pack_iq4_xs(const std::byte* from, int, std::byte* segment, int row) {
  std::memcpy(piece(segment, 0, 8, row), from, 8);
  for (int g = 0; g < kSegmentGroups; ++g) std::memcpy(piece(segment, 8 + g * 16, 16, row), from + 8 + g * 16, 16);
}

}  // namespace

extern const PanelFormat k_panel_iq4_xs;
const PanelFormat k_panel_iq4_xs = {.name = "iq4_xs",
                                    .header_bytes = 8,
                                    .group_bytes = 16,
                                    .q8_block = 256,
                                    .block_elems = 256,
                                    .block_bytes = 136,
                                    .pack = pack_iq4_xs};

}  // namespace zinc::gpu
