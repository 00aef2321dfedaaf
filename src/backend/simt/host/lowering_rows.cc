#include "backend/simt/host/lowering.h"

#include <algorithm>

namespace zinc::simt::host {

Status Lowering::lower_rope_tables() {
  for (const RopeTable& table : workspace_.rope_tables()) {
    static_assert(simt::kMaxRopeScalings == zinc::kMaxRopeScalings);
    simt::RopeTableParams params{.step = workspace_.step(),
                                 .frequencies = table.frequencies.device_ptr<const double>(),
                                 .table = table.table.device_ptr<float>(),
                                 .scalings = nullptr,
                                 .n_pairs = table.n_pairs,
                                 .amplitudes = {}};
    if (table.amplitudes.size() > 1) params.scalings = params.step.counts + workspace_.layout().rope_scalings;
    std::ranges::copy(table.amplitudes, params.amplitudes);
    if (Status s = emit_threads("rope_table", params, int64_t{sizes_.max_tokens} * params.n_pairs); !s.ok()) {
      return s;
    }
  }
  return ok_status();
}

Status Lowering::lower(const gpu::EmbedCall& call) {
  const Node& n = *call.node;
  const DeviceMatrix* table = weights_.table(info(n.in[0]).name);
  const simt::EmbedParams params{
      .step = workspace_.step(), .table = simt_matrix(*table), .out = workspace_.floats(n.out[0])};
  return emit({"pack", std::string(table->format->name)}, "embed", params, sizes_.max_tokens);
}

Status Lowering::emit_copy(const gpu::RowCopy& copy, simt::CopyParams& params, int64_t n_elems,
                           const gpu::Accesses& accesses) {
  params.from = copy.from ? workspace_.floats(copy.from) : workspace_.hidden_in().device_ptr<const float>();
  params.row_ids = copy.gathers_output_rows ? workspace_.step().output_rows : nullptr;
  params.length = copy.length;
  return emit_threads("copy_parts", params, n_elems, accesses);
}

Status Lowering::emit_norm(NormKind kind, simt::NormParams& params, int64_t n_vectors, const gpu::Accesses& accesses) {
  params.is_l2 = kind == NormKind::l2 ? 1 : 0;
  if (params.width <= simt::kSegmentElems) return emit_warps("norm_heads", params, n_vectors, accesses);
  const bool is_long = params.width > simt::kMaxNormSegments * simt::kWarps * simt::kSegmentElems;
  return emit({"row_ops", ""}, is_long ? "norm_long_rows" : "norm_rows", params, n_vectors);
}

Status Lowering::lower(const gpu::QuantizeCall& call) {
  const simt::QuantizeParams params{.x = workspace_.floats(call.x),
                                    .out = q8_buffers(call.to, call.x),
                                    .n_rows = n_rows(call.x),
                                    .vectors_per_row = static_cast<int>(width(call.x) / call.to.n_in),
                                    .width = call.to.n_in,
                                    .q8_block = call.to.block};
  const int64_t n_segments = ceil_div(call.to.n_in, simt::kSegmentElems);
  return emit_warps("quantize_rows", params, int64_t{max_rows(call.x)} * params.vectors_per_row * n_segments);
}

// wgmma_aux, read only by gemm_wgmma, is not written in small steps.
simt::Q8Activation Lowering::q8_buffers(const gpu::QuantizedActivation& activation, Value v) const {
  simt::Q8Activation out = workspace_.quantized(activation);
  if (is_small(v, width(v) / activation.n_in)) out.wgmma_aux = nullptr;
  return out;
}

Status Lowering::lower(const gpu::NormResidualCall& call) {
  simt::NormResidualParams params{};
  const auto eps = [](const Node* norm) { return norm->as<zinc::NormParams>().eps; };
  for (const Node* norm : call.norms) {
    if (!norm) continue;
    const int i = params.n_normed++;
    params.x[i] = workspace_.floats(norm->in[0]);
    params.weights[i] = vector(norm->in[1]);
    params.eps[i] = eps(norm);
  }
  if (call.outer) {
    params.has_outer = 1;
    params.outer_weights = vector(call.outer->in[1]);
    params.outer_eps = eps(call.outer);
  }
  const Value sum = call.add->out[0];
  params.residual = workspace_.floats(call.residual);
  params.out = workspace_.floats(call.out());
  params.scale = vector(call.mul ? call.mul->in[1] : Value());
  params.width = static_cast<int>(width(sum));
  params.n_rows = n_rows(sum);
  params.max_rows = max_rows(sum);
  if (call.second_norm) {
    params.second_out = workspace_.floats(call.second_norm_mul->out[0]);
    params.second_norm_weights = vector(call.second_norm->in[1]);
    params.second_eps = eps(call.second_norm);
    params.second_factor = call.second_norm_scale->as<ScaleParams>().factor;
    params.second_weights = vector(call.second_norm_mul->in[1]);
  }
  if (call.next_norm) {
    params.next_weights = vector(call.next_norm->in[1]);
    params.next_eps = eps(call.next_norm);
    params.normed = call.normed.has_floats ? workspace_.floats(call.normed.value) : nullptr;
    if (call.normed.q8) fill_q8(*call.normed.q8, call.normed.value, params);
  }
  const int64_t n_segments = ceil_div(params.width, simt::kWarps * simt::kSegmentElems);
  const std::string shape =
      fmt::format("inline constexpr int kResidualSegments = {}; inline constexpr bool kHasNextNorm = {};", n_segments,
                  call.next_norm != nullptr);
  return emit({"norm_residual", "", shape}, "norm_residual", params, is_decode() ? one_per_sm(1) : params.max_rows);
}

Status Lowering::lower(const gpu::GatedActPairCall& call) {
  gpu::Accesses accesses;
  const auto n_blocks = [&](const gpu::GatedActCall& act) { return ceil_div(n_gated_act_warps(act), simt::kWarps); };
  const auto& [first, second] = call.acts;
  const simt::GatedActPairParams params{.acts = {gated_act_params(first, accesses), gated_act_params(second, accesses)},
                                        .n_first_blocks = static_cast<int>(n_blocks(first))};
  return emit({"row_ops", ""}, "gated_act_pair", params, n_blocks(first) + n_blocks(second));
}

Status Lowering::lower(const gpu::RouteCall& call) {
  const Node& n = *call.node;
  const MoeRouteParams& route = n.as<MoeRouteParams>();
  const simt::RouteShape shape{.n_experts = static_cast<int>(width(n.in[0])),
                               .n_experts_used = static_cast<int>(route.n_used),
                               .router_normalization = static_cast<int>(route.weights)};
  if (shape.n_experts > simt::kMaxExperts || shape.n_experts_used > simt::kMaxExpertsUsed) {
    return fail(ErrorCode::unsupported,
                "{}: {} supports up to {} experts, {} per token; this model has {}, {} per token", device_.name,
                op_name(n.op), simt::kMaxExperts, simt::kMaxExpertsUsed, shape.n_experts, shape.n_experts_used);
  }
  simt::RouteParams params{.logits = workspace_.floats(n.in[0]),
                           .ids = workspace_.ints(n.out[0]),
                           .weights = workspace_.floats(n.out[1]),
                           .n_rows = n_rows(n.in[0]),
                           .routed_scaling_factor = route.scale,
                           .tile_tokens = 0,
                           .tiles = workspace_.expert_tiles(),
                           .n_blocks_done = workspace_.route_blocks_done()};
  const auto is_tiled = [&](const Node* reader) {  // else each pair reads its expert
    return reader->op == Op::moe_linear && matrix_of(*reader).format->q8_block > 0 &&
           (runs_gemm_small_experts(int64_t{max_rows(n.in[0])} * shape.n_experts_used, shape.n_experts) ||
            !is_small(n.in[0], 1));
  };
  if (std::ranges::any_of(workspace_.uses().readers(n.out[0]), is_tiled)) {
    params.tile_tokens = expert_tile_tokens(int64_t{max_rows(n.in[0])} * shape.n_experts_used, shape.n_experts);
  }
  return emit({"moe", "", shape_definition("RouteShape", shape)}, "moe_route", params,
              ceil_div(max_rows(n.in[0]), simt::kWarps));
}

// A block keeps its part of a row in registers; a row with a norm is one part.
Status Lowering::lower(const gpu::CombineCall& call) {
  gpu::Accesses accesses;
  simt::CombineParams params = combine_params(call, accesses);
  if (call.shared_act) {
    params.shared_gate = workspace_.floats(call.shared_act->in[0]);
    params.shared = workspace_.floats(call.shared_act->in[1]);
  }
  if (call.norm) {
    params.is_normed = 1;
    params.norm_weight = vector(call.norm->in[1]);
    params.norm_eps = call.norm->as<zinc::NormParams>().eps;
    params.normed = call.normed.has_floats ? workspace_.floats(call.normed.value) : nullptr;
    if (call.normed.q8) fill_q8(*call.normed.q8, call.normed.value, params);
  }
  const int64_t n_segments = ceil_div(params.dim, simt::kWarps * simt::kSegmentElems);
  const int64_t n_parts = ceil_div(n_segments, simt::kMaxResidualSegments);
  const std::string shape = fmt::format("inline constexpr int kCombineSegments = {};", ceil_div(n_segments, n_parts));
  return emit({"combine", "", shape}, "moe_combine", params, max_rows(call.out()), n_parts);
}

Status Lowering::lower(const gpu::SampleCall& call) {
  const Node& n = *call.node;
  const simt::SampleParams params{.step = workspace_.step(),
                                  .sampling = workspace_.sampling_params(),
                                  .logits = workspace_.floats(n.in[0]),
                                  .chunk_best = workspace_.chunk_best().device_ptr<float>(),
                                  .chunks = workspace_.sample_chunks().device_ptr<int>(),
                                  .chunk_masses = workspace_.chunk_masses(),
                                  .best = workspace_.best().device_ptr<float>(),
                                  .best_id = workspace_.best_id().device_ptr<int>(),
                                  .sampled = workspace_.sampled().device_ptr<int>(),
                                  .vocab = static_cast<int>(width(n.in[0]))};
  const KernelProgram program{"sample", ""};
  if (Status s = emit(program, "sample_parts", params, simt::kSampleSplits, sizes_.max_outputs); !s.ok()) return s;
  Launch rows = Launch::of(params);
  rows.threads = simt::kSampleThreads;
  return add(program, "sample_rows", rows, sizes_.max_outputs, 1, 1, 0);
}

}  // namespace zinc::simt::host
