#include "backend/gpu/format/pack.h"

namespace zinc::gpu {
namespace {

void pack_mxfp4(const std::byte* from, int n_elems, std::byte* segment, int row) {
  for (int g = 0; g < n_elems / kGroupElems; ++g, from += 17) {
    piece(segment, 0, 8, row)[g] = from[0];
    std::memcpy(piece(segment, 8 + g * 16, 16, row), from + 1, 16);
  }
}

}  // namespace

extern const PanelFormat k_panel_mxfp4;
const PanelFormat k_panel_mxfp4 = {.name = "mxfp4",
                                   .header_bytes = 8,
                                   .group_bytes = 16,
                                   .q8_block = 32,
                                   .block_elems = 32,
                                   .block_bytes = 17,
                                   .pack = pack_mxfp4,
                                   .has_power_scales = true};

}  // namespace zinc::gpu
