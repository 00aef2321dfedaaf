#include "graph/op.h"

#include <array>

namespace zinc {

std::string_view op_name(Op op) {
  static constexpr std::array<std::string_view, kOpCount> kNames = {
      "embed",     "hidden_in",  "linear",      "norm",       "rope",      "attention", "gated_act",
      "moe_route", "moe_linear", "moe_combine", "short_conv", "delta_net", "add",       "mul",
      "scale",     "softcap",    "view",        "slice",      "concat",    "rows",      "sample"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace zinc
