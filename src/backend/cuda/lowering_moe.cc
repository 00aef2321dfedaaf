#include "backend/cuda/lowering.h"

namespace zinc::cuda {

Status Lowering::lower(const gpu::RouteCall& call) {
  const Node& n = *call.node;
  const MoeRouteParams& route = n.as<MoeRouteParams>();
  const simt::RouteParams params{.logits = workspace_.floats(n.in[0]),
                                 .ids = workspace_.ints(n.out[0]),
                                 .weights = workspace_.floats(n.out[1]),
                                 .n_rows = n_rows(n.in[0]),
                                 .n_experts = static_cast<int>(width(n.in[0])),
                                 .n_experts_used = static_cast<int>(route.n_used),
                                 .router_normalization = static_cast<int>(route.weights),
                                 .routed_scaling_factor = route.scale};
  if (params.n_experts > simt::kMaxExperts) {
    return fail(ErrorCode::unsupported, "the cuda backend's {} supports up to {} experts; this model has {}",
                op_name(n.op), simt::kMaxExperts, params.n_experts);
  }
  if (Status s = emit({"moe", ""}, "moe_route", params, max_rows(n.in[0])); !s.ok()) return s;
  if (is_small(n.in[0], 1)) return ok_status();
  const simt::SortByExpertParams pairs{.ids = params.ids,
                                       .n_rows = params.n_rows,
                                       .n_experts_used = params.n_experts_used,
                                       .n_experts = params.n_experts,
                                       .tile_tokens = gemm_tile_tokens(),
                                       .out = workspace_.expert_tiles()};
  return emit({"moe", ""}, "moe_sort_by_expert", pairs, 1);
}

Status Lowering::lower(const gpu::CombineCall& call) {
  const Node& n = *call.node;
  const simt::CombineParams params{.x = workspace_.floats(n.in[0]),
                                   .weights = workspace_.floats(n.in[1]),
                                   .out = workspace_.floats(n.out[0]),
                                   .n_rows = n_rows(n.out[0]),
                                   .n_experts_used = static_cast<int>(width(n.in[1])),
                                   .dim = static_cast<int>(width(n.out[0]))};
  return emit_threads("moe", "moe_combine", params, int64_t{max_rows(n.out[0])} * params.dim);
}

}  // namespace zinc::cuda
