#include "backend/gpu/format/pack.h"

namespace zinc::gpu {

inline constexpr BlockLayout kIq4NlLayout = {.block_bytes = 18, .header_bytes = 16, .group_bytes = 16};

extern const PanelFormat k_panel_iq4_nl;
const PanelFormat k_panel_iq4_nl = block_panel<kIq4NlLayout>("iq4_nl");

}  // namespace zinc::gpu
