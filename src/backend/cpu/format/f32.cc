// F32, as it is.
#include "backend/cpu/format/float_blocks.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Kind {
  using Stored = float;
  static F load(const Stored* rows) { return f_load(rows); }
};

}  // namespace

extern const PanelFormat k_panel_f32;
const PanelFormat k_panel_f32 = panel_format<FloatBlock<Kind>>("f32");

}  // namespace zinc::cpu::ZINC_ISA
