#include "backend/gpu/format/pack.h"

namespace zinc::gpu {

extern const PanelFormat k_panel_bf16;
const PanelFormat k_panel_bf16 = float_panel<2>("bf16");

}  // namespace zinc::gpu
