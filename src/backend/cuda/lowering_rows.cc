#include "backend/cuda/lowering.h"

#include <algorithm>

namespace zinc::cuda {

Status Lowering::lower_rope_tables() {
  for (const RopeTable& table : workspace_.rope_tables()) {
    const simt::RopeTableParams params{.step = workspace_.step(),
                                       .frequencies = table.frequencies.device_ptr<const double>(),
                                       .table = table.table.device_ptr<float>(),
                                       .n_pairs = table.n_pairs,
                                       .amplitude = table.amplitude};
    if (Status s = emit_threads("row_ops", "rope_table", params, int64_t{sizes_.max_tokens} * params.n_pairs);
        !s.ok()) {
      return s;
    }
  }
  return ok_status();
}

Status Lowering::lower_embed(int i) {
  const Node& n = node(i);
  const DeviceMatrix* table = weights_.table(info(n.in[0]).name);
  const simt::EmbedParams params{
      .step = workspace_.step(), .table = simt_matrix(*table), .out = workspace_.floats(n.out[0])};
  return emit({"pack", std::string(table->format->name)}, "embed", params, sizes_.max_tokens);
}

// The hidden states are uploaded before the step starts, when another value may still occupy their activation memory.
Status Lowering::lower_hidden_in(int i) {
  const Value out = node(i).out[0];
  const int w = static_cast<int>(width(out));
  const simt::CopyParams params{.from = workspace_.hidden_in().device_ptr<const float>(),
                                .to = workspace_.floats(out),
                                .n_rows = n_rows(out),
                                .row_ids = nullptr,
                                .vectors_per_row = 1,
                                .from_width = w,
                                .from_begin = 0,
                                .to_width = w,
                                .to_begin = 0,
                                .length = w};
  return emit_threads("row_ops", "copy_parts", params, int64_t{sizes_.max_tokens} * w);
}

Status Lowering::lower_norm(int i) {
  const Node& n = node(i);
  const zinc::NormParams& norm = n.as<zinc::NormParams>();
  simt::NormParams params{};
  params.x = workspace_.floats(n.in[0]);
  params.weight = vector(n.in[1]);
  params.n_rows = n_rows(n.in[0]);
  params.width = static_cast<int>(inner(n.in[0]));
  params.vectors_per_row = static_cast<int>(width(n.in[0]) / params.width);
  params.eps = norm.eps;
  params.is_l2 = norm.kind == NormKind::l2 ? 1 : 0;
  if (is_decode() ? workspace_.fusion().is_prologue_norm(i, true)
                  : workspace_.fusion().is_prologue_norm(i, false) && is_small(n.out[0], params.vectors_per_row)) {
    return ok_status();
  }
  const OutputBuffers out = output_buffers(n.out[0], params.width);
  params.out = out.floats;
  params.q8 = out.q8;
  params.q8_block = out.block;
  const int64_t rows = int64_t{max_rows(n.in[0])} * params.vectors_per_row;
  if (params.width <= simt::kSegmentElems) return emit_warps("row_ops", "norm_heads", params, rows);
  return emit({"row_ops", ""}, "norm_rows", params, rows);
}

Status Lowering::lower_norm_residual(const NormResidual& group) {
  simt::NormResidualParams params{};
  const auto eps = [&](int norm) { return node(norm).as<zinc::NormParams>().eps; };
  for (size_t i = 0; i < 2 && group.norms[i] >= 0; ++i) {
    const Node& norm = node(group.norms[i]);
    params.x[i] = workspace_.floats(norm.in[0]);
    params.weights[i] = vector(norm.in[1]);
    params.eps[i] = eps(group.norms[i]);
    ++params.n_normed;
  }
  int last = group.norms[0];
  if (group.outer >= 0) {
    last = group.outer;
    params.has_outer = 1;
    params.outer_weights = vector(node(last).in[1]);
    params.outer_eps = eps(last);
  }
  params.residual = other_operand(group.add, node(last).out[0]);
  params.out = workspace_.floats(node(group.mul >= 0 ? group.mul : group.add).out[0]);
  params.scale = group.mul >= 0 ? vector(node(group.mul).in[1]) : nullptr;
  params.width = static_cast<int>(width(node(group.add).out[0]));
  params.n_rows = n_rows(node(group.add).out[0]);
  params.max_rows = max_rows(node(group.add).out[0]);
  if (group.second_norm_mul >= 0) {
    params.second_out = workspace_.floats(node(group.second_norm_mul).out[0]);
    params.second_norm_weights = vector(node(group.second_norm).in[1]);
    params.second_eps = eps(group.second_norm);
    params.second_factor = node(group.second_norm_scale).as<ScaleParams>().factor;
    params.second_weights = vector(node(group.second_norm_mul).in[1]);
  }
  const int64_t n_segments = ceil_div(params.width, simt::kWarps * simt::kSegmentElems);
  const std::string shape = fmt::format("inline constexpr int kResidualSegments = {};", n_segments);
  return emit({"norm_residual", "", shape}, "norm_residual", params, is_decode() ? one_per_sm(1) : params.max_rows);
}

Status Lowering::lower_rope(int i) {
  const Node& n = node(i);
  const RopeTable& table = workspace_.rope_table(i);
  const simt::RopeParams params{.x = workspace_.floats(n.in[0]),
                                .out = workspace_.floats(n.out[0]),
                                .table = table.table.device_ptr<const float>(),
                                .n_rows = n_rows(n.in[0]),
                                .n_heads = static_cast<int>(width(n.in[0]) / inner(n.in[0])),
                                .head_dim = static_cast<int>(inner(n.in[0])),
                                .n_pairs = table.n_pairs,
                                .adjacent = n.as<zinc::RopeParams>().pairs == RopePairs::adjacent ? 1 : 0};
  return emit_threads("row_ops", "rope", params,
                      int64_t{sizes_.max_tokens} * params.n_heads * (params.head_dim - params.n_pairs));
}

Status Lowering::lower_gated_act(int i) {
  const Node& n = node(i);
  simt::GatedActParams params{};
  params.gate = workspace_.floats(n.in[0]);
  params.up = workspace_.floats(n.in[1]);
  params.n_rows = n_rows(n.out[0]);
  params.act = static_cast<int>(n.as<GatedActParams>().act);
  params.scalar_gate = width(n.in[0]) == 1 && width(n.out[0]) > 1 ? 1 : 0;
  const auto& activations = workspace_.fusion().quantized_activations();
  const auto activation = std::ranges::find(activations, n.out[0].id, &QuantizedActivation::storage_root);
  params.width = activation != activations.end() ? activation->n_in : static_cast<int>(width(n.out[0]));
  const OutputBuffers out = output_buffers(n.out[0], params.width);
  params.out = out.floats;
  params.q8 = out.q8;
  params.q8_block = out.block;
  params.vectors_per_row = static_cast<int>(width(n.out[0]) / params.width);
  return emit_warps("row_ops", "gated_act", params,
                    int64_t{max_rows(n.out[0])} * params.vectors_per_row * ceil_div(params.width, simt::kSegmentElems));
}

Status Lowering::lower_elementwise(int i) {
  const Node& n = node(i);
  simt::ElementwiseParams params{};
  params.a = workspace_.floats(n.in[0]);
  params.out = workspace_.floats(n.out[0]);
  params.n_rows = n_rows(n.out[0]);
  params.width = static_cast<int>(width(n.out[0]));
  if (n.op == Op::add) {
    params.op = simt::kAdd;
    params.b = workspace_.floats(n.in[1]);
  } else if (n.op == Op::mul) {
    params.op = simt::kMul;
    params.b = vector(n.in[1]);
    params.b_width = static_cast<int>(width(n.in[1]));
  } else {
    params.op = n.op == Op::scale ? simt::kScale : simt::kSoftcap;
    params.factor = n.op == Op::scale ? n.as<ScaleParams>().factor : n.as<SoftcapParams>().cap;
  }
  return emit_threads("row_ops", "elementwise", params, int64_t{max_rows(n.out[0])} * params.width);
}

Status Lowering::lower_slice(int i) {
  const Node& n = node(i);
  const simt::CopyParams params{.from = workspace_.floats(n.in[0]),
                                .to = workspace_.floats(n.out[0]),
                                .n_rows = n_rows(n.out[0]),
                                .row_ids = nullptr,
                                .vectors_per_row = static_cast<int>(width(n.out[0]) / inner(n.out[0])),
                                .from_width = static_cast<int>(inner(n.in[0])),
                                .from_begin = static_cast<int>(n.as<SliceParams>().begin),
                                .to_width = static_cast<int>(inner(n.out[0])),
                                .to_begin = 0,
                                .length = static_cast<int>(inner(n.out[0]))};
  return emit_threads("row_ops", "copy_parts", params, int64_t{max_rows(n.out[0])} * width(n.out[0]));
}

Status Lowering::lower_concat(int i) {
  const Node& n = node(i);
  int begin = 0;
  for (Value part : {n.in[0], n.in[1]}) {
    const int length = static_cast<int>(inner(part));
    const simt::CopyParams params{.from = workspace_.floats(part),
                                  .to = workspace_.floats(n.out[0]),
                                  .n_rows = n_rows(n.out[0]),
                                  .row_ids = nullptr,
                                  .vectors_per_row = static_cast<int>(width(part) / length),
                                  .from_width = length,
                                  .from_begin = 0,
                                  .to_width = static_cast<int>(inner(n.out[0])),
                                  .to_begin = begin,
                                  .length = length};
    if (Status s = emit_threads("row_ops", "copy_parts", params, int64_t{max_rows(part)} * width(part)); !s.ok())
      return s;
    begin += length;
  }
  return ok_status();
}

Status Lowering::lower_rows(int i) {
  const Node& n = node(i);
  const int w = static_cast<int>(width(n.out[0]));
  const simt::CopyParams params{.from = workspace_.floats(n.in[0]),
                                .to = workspace_.floats(n.out[0]),
                                .n_rows = n_rows(n.out[0]),
                                .row_ids = workspace_.step().output_rows,
                                .vectors_per_row = 1,
                                .from_width = w,
                                .from_begin = 0,
                                .to_width = w,
                                .to_begin = 0,
                                .length = w};
  return emit_threads("row_ops", "copy_parts", params, int64_t{sizes_.max_outputs} * w);
}

}  // namespace zinc::cuda
