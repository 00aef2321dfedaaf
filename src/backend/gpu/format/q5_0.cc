#include "backend/gpu/format/pack.h"

namespace zinc::gpu {

inline constexpr BlockLayout kQ50Layout = {
    .block_bytes = 22, .header_bytes = 16, .group_bytes = 20, .fifth_bits = 2, .quants = 6};

extern const PanelFormat k_panel_q5_0;
const PanelFormat k_panel_q5_0 = block_panel<kQ50Layout>("q5_0");

}  // namespace zinc::gpu
