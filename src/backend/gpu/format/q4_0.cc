#include "backend/gpu/format/pack.h"

namespace zinc::gpu {

inline constexpr BlockLayout kQ40Layout = {.block_bytes = 18, .header_bytes = 16, .group_bytes = 16};

extern const PanelFormat k_panel_q4_0;
const PanelFormat k_panel_q4_0 = block_panel<kQ40Layout>("q4_0");

}  // namespace zinc::gpu
