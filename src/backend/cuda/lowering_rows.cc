#include "backend/cuda/lowering.h"

#include <algorithm>

namespace zinc::cuda {

Status Lowering::lower_rope_tables() {
  for (const RopeTable& table : room_.rope_tables()) {
    const simt::RopeTableParams params{.step = room_.step(),
                                       .frequencies = table.device_frequencies.as<const double>(),
                                       .table = table.table.as<float>(),
                                       .n_pairs = static_cast<int>(table.frequencies.size()),
                                       .amplitude = table.amplitude};
    if (Status s = emit_threads("rows", "rope_table", params, int64_t{sizes_.max_tokens} * params.n_pairs); !s.ok()) {
      return s;
    }
  }
  return ok_status();
}

Status Lowering::lower_embed(int i) {
  const Node& n = node(i);
  const DeviceMatrix* table = weights_.table(info(n.in[0]).name);
  const simt::EmbedParams params{.step = room_.step(), .table = table->matrix, .out = room_.floats(n.out[0])};
  return emit({"pack", std::string(table->format->name)}, "embed", params, sizes_.max_tokens);
}

// The states arrive before the step begins, when their place among the activations may still be another value's.
Status Lowering::lower_hidden_in(int i) {
  const Value out = node(i).out[0];
  const int w = static_cast<int>(width(out));
  const simt::CopyParams params{.from = room_.hidden_in().as<const float>(),
                                .to = room_.floats(out),
                                .n_rows = n_rows(out),
                                .row_ids = nullptr,
                                .per_row = 1,
                                .from_width = w,
                                .from_begin = 0,
                                .to_width = w,
                                .to_begin = 0,
                                .length = w};
  return emit_threads("rows", "copy_parts", params, int64_t{sizes_.max_tokens} * w);
}

Status Lowering::lower_norm(int i) {
  const Node& n = node(i);
  const zinc::NormParams& norm = n.as<zinc::NormParams>();
  simt::NormParams params{};
  params.x = room_.floats(n.in[0]);
  params.weight = vector(n.in[1]);
  params.n_rows = n_rows(n.in[0]);
  params.width = static_cast<int>(inner(n.in[0]));
  params.per_row = static_cast<int>(width(n.in[0]) / params.width);
  params.eps = norm.eps;
  params.is_l2 = norm.kind == NormKind::l2 ? 1 : 0;
  if (is_one_row() ? room_.fusion().is_folded(i, true)
                   : room_.fusion().is_folded(i, false) && is_small(n.out[0], params.per_row)) {
    return ok_status();
  }
  const Written out = written(n.out[0], params.width);
  params.out = out.floats;
  params.rounded = out.rounded;
  params.block = out.block;
  const int64_t rows = int64_t{max_rows(n.in[0])} * params.per_row;
  if (params.width <= simt::kSegmentElems) return emit_warps("rows", "norm_heads", params, rows);
  return emit({"rows", ""}, "norm_rows", params, rows);
}

Status Lowering::lower_add_normed(const AddNormed& group) {
  simt::AddNormedParams params{};
  const auto eps = [&](int norm) { return node(norm).as<zinc::NormParams>().eps; };
  for (size_t i = 0; i < 2 && group.norms[i] >= 0; ++i) {
    const Node& norm = node(group.norms[i]);
    params.x[i] = room_.floats(norm.in[0]);
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
  params.out = room_.floats(node(group.mul >= 0 ? group.mul : group.add).out[0]);
  params.scale = group.mul >= 0 ? vector(node(group.mul).in[1]) : nullptr;
  params.width = static_cast<int>(width(node(group.add).out[0]));
  params.n_rows = n_rows(node(group.add).out[0]);
  params.most_rows = max_rows(node(group.add).out[0]);
  if (group.branch_mul >= 0) {
    params.branch = room_.floats(node(group.branch_mul).out[0]);
    params.branch_norm_weights = vector(node(group.branch_norm).in[1]);
    params.branch_eps = eps(group.branch_norm);
    params.branch_factor = node(group.branch_scale).as<ScaleParams>().factor;
    params.branch_weights = vector(node(group.branch_mul).in[1]);
  }
  const int64_t n_segments = div_up(params.width, simt::kWarps * simt::kSegmentElems);
  const std::string shape = fmt::format("inline constexpr int kStreamSegments = {};", n_segments);
  return emit({"residual", "", shape}, "add_normed", params,
              is_one_row() ? one_per_multiprocessor(1) : params.most_rows);
}

Status Lowering::lower_rope(int i) {
  const Node& n = node(i);
  const RopeTable& table = room_.rope_table(i);
  const simt::RopeParams params{.x = room_.floats(n.in[0]),
                                .out = room_.floats(n.out[0]),
                                .table = table.table.as<const float>(),
                                .n_rows = n_rows(n.in[0]),
                                .n_heads = static_cast<int>(width(n.in[0]) / inner(n.in[0])),
                                .head_dim = static_cast<int>(inner(n.in[0])),
                                .n_pairs = static_cast<int>(table.frequencies.size()),
                                .adjacent = n.as<zinc::RopeParams>().pairs == RopePairs::adjacent ? 1 : 0};
  return emit_threads("rows", "rope", params,
                      int64_t{sizes_.max_tokens} * params.n_heads * (params.head_dim - params.n_pairs));
}

Status Lowering::lower_gated_act(int i) {
  const Node& n = node(i);
  simt::GatedActParams params{};
  params.gate = room_.floats(n.in[0]);
  params.up = room_.floats(n.in[1]);
  params.n_rows = n_rows(n.out[0]);
  params.act = static_cast<int>(n.as<GatedActParams>().act);
  params.one_gate = width(n.in[0]) == 1 && width(n.out[0]) > 1 ? 1 : 0;
  const auto& forms = room_.fusion().rounded_forms();
  const auto form = std::ranges::find(forms, n.out[0].id, &RoundedForm::owner);
  params.width = form != forms.end() ? form->n_in : static_cast<int>(width(n.out[0]));
  const Written out = written(n.out[0], params.width);
  params.out = out.floats;
  params.rounded = out.rounded;
  params.block = out.block;
  params.per_row = static_cast<int>(width(n.out[0]) / params.width);
  return emit_warps("rows", "gated_act", params,
                    int64_t{max_rows(n.out[0])} * params.per_row * div_up(params.width, simt::kSegmentElems));
}

Status Lowering::lower_elementwise(int i) {
  const Node& n = node(i);
  simt::ElementwiseParams params{};
  params.a = room_.floats(n.in[0]);
  params.out = room_.floats(n.out[0]);
  params.n_rows = n_rows(n.out[0]);
  params.width = static_cast<int>(width(n.out[0]));
  if (n.op == Op::add) {
    params.op = simt::kAdd;
    params.b = room_.floats(n.in[1]);
  } else if (n.op == Op::mul) {
    params.op = simt::kMul;
    params.b = vector(n.in[1]);
    params.b_width = static_cast<int>(width(n.in[1]));
  } else {
    params.op = n.op == Op::scale ? simt::kScale : simt::kSoftcap;
    params.factor = n.op == Op::scale ? n.as<ScaleParams>().factor : n.as<SoftcapParams>().cap;
  }
  return emit_threads("rows", "elementwise", params, int64_t{max_rows(n.out[0])} * params.width);
}

Status Lowering::lower_slice(int i) {
  const Node& n = node(i);
  const simt::CopyParams params{.from = room_.floats(n.in[0]),
                                .to = room_.floats(n.out[0]),
                                .n_rows = n_rows(n.out[0]),
                                .row_ids = nullptr,
                                .per_row = static_cast<int>(width(n.out[0]) / inner(n.out[0])),
                                .from_width = static_cast<int>(inner(n.in[0])),
                                .from_begin = static_cast<int>(n.as<SliceParams>().begin),
                                .to_width = static_cast<int>(inner(n.out[0])),
                                .to_begin = 0,
                                .length = static_cast<int>(inner(n.out[0]))};
  return emit_threads("rows", "copy_parts", params, int64_t{max_rows(n.out[0])} * width(n.out[0]));
}

Status Lowering::lower_concat(int i) {
  const Node& n = node(i);
  int begin = 0;
  for (Value part : {n.in[0], n.in[1]}) {
    const int length = static_cast<int>(inner(part));
    const simt::CopyParams params{.from = room_.floats(part),
                                  .to = room_.floats(n.out[0]),
                                  .n_rows = n_rows(n.out[0]),
                                  .row_ids = nullptr,
                                  .per_row = static_cast<int>(width(part) / length),
                                  .from_width = length,
                                  .from_begin = 0,
                                  .to_width = static_cast<int>(inner(n.out[0])),
                                  .to_begin = begin,
                                  .length = length};
    if (Status s = emit_threads("rows", "copy_parts", params, int64_t{max_rows(part)} * width(part)); !s.ok()) return s;
    begin += length;
  }
  return ok_status();
}

Status Lowering::lower_rows(int i) {
  const Node& n = node(i);
  const int w = static_cast<int>(width(n.out[0]));
  const simt::CopyParams params{.from = room_.floats(n.in[0]),
                                .to = room_.floats(n.out[0]),
                                .n_rows = n_rows(n.out[0]),
                                .row_ids = room_.step().output_rows,
                                .per_row = 1,
                                .from_width = w,
                                .from_begin = 0,
                                .to_width = w,
                                .to_begin = 0,
                                .length = w};
  return emit_threads("rows", "copy_parts", params, int64_t{sizes_.max_outputs} * w);
}

}  // namespace zinc::cuda
