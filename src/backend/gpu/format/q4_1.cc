#include "backend/gpu/format/pack.h"

namespace zinc::gpu {

inline constexpr BlockLayout kQ41Layout = {
    .block_bytes = 20, .header_bytes = 32, .group_bytes = 16, .n_halves = 2, .quants = 4};

extern const PanelFormat k_panel_q4_1;
const PanelFormat k_panel_q4_1 = block_panel<kQ41Layout>("q4_1");

}  // namespace zinc::gpu
