#include "backend/cpu/kernel/functions.h"

#define ZINC_NAME_OF(isa) #isa
#define ZINC_NAME(isa) ZINC_NAME_OF(isa)

namespace zinc::cpu::ZINC_ISA {

extern const Kernels k_kernels;
const Kernels k_kernels = {.isa = ZINC_NAME(ZINC_ISA),
                           .panel_formats = kPanelFormats,
                           .tile_tokens = kTileTokens,
                           .quantize = quantize,
                           .rms_norm = rms_norm,
                           .l2_norm = l2_norm,
                           .gated_act = gated_act,
                           .add = add,
                           .mul = mul,
                           .unary = unary,
                           .add_scaled = add_scaled,
                           .short_conv = short_conv,
                           .argmax = argmax,
                           .merge_value = merge_value,
                           .finish_attention = finish_attention,
                           .delta_net = delta_net,
                           .kv_layout = kv_layout,
                           .run_dot_products = run_dot_products};

}  // namespace zinc::cpu::ZINC_ISA
