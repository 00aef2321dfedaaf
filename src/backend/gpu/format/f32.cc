#include "backend/gpu/format/pack.h"

namespace zinc::gpu {

extern const PanelFormat k_panel_f32;
const PanelFormat k_panel_f32 = float_panel<4>("f32");

}  // namespace zinc::gpu
