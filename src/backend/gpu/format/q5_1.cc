#include "backend/gpu/format/pack.h"

namespace zinc::gpu {

inline constexpr BlockLayout kQ51Layout = {
    .block_bytes = 24, .header_bytes = 32, .group_bytes = 20, .n_halves = 2, .fifth_bits = 4, .quants = 8};

extern const PanelFormat k_panel_q5_1;
const PanelFormat k_panel_q5_1 = block_panel<kQ51Layout>("q5_1");

}  // namespace zinc::gpu
