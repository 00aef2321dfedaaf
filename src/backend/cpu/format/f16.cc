// F16, as it is.
#include "backend/cpu/format/float_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind {
  using Stored = uint16_t;
  static F load(const Stored* rows) { return f_load_half(rows); }
};

}  // namespace

extern const PanelFormat k_panel_f16;
const PanelFormat k_panel_f16 = panel_format<FloatBlock<Kind>>("f16");

}  // namespace zinc::cpu::ZINC_ISA
