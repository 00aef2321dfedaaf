#include "backend/gpu/format/pack.h"

namespace zinc::gpu {

inline constexpr BlockLayout kQ80Layout = {
    .block_bytes = 34, .header_bytes = 16, .group_bytes = 32, .n_quant_bytes = 32};

extern const PanelFormat k_panel_q8_0;
const PanelFormat k_panel_q8_0 = block_panel<kQ80Layout>("q8_0");

}  // namespace zinc::gpu
