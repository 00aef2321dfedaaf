#include "backend/gpu/format/pack.h"

namespace zinc::gpu {

extern const PanelFormat k_panel_f16;
const PanelFormat k_panel_f16 = float_panel<2>("f16");

}  // namespace zinc::gpu
