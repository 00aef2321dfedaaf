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

Status Lowering::lower(const gpu::EmbedCall& call) {
  const Node& n = *call.node;
  const DeviceMatrix* table = weights_.table(info(n.in[0]).name);
  const simt::EmbedParams params{
      .step = workspace_.step(), .table = simt_matrix(*table), .out = workspace_.floats(n.out[0])};
  return emit({"pack", std::string(table->format->name)}, "embed", params, sizes_.max_tokens);
}

// The hidden states are copied: they are uploaded before the step starts, when another value may still occupy their
// activation memory.
Status Lowering::lower(const gpu::CopyCall& call) {
  for (const gpu::RowCopy& copy : call.copies) {
    const simt::CopyParams params{
        .from = copy.from ? workspace_.floats(copy.from) : workspace_.hidden_in().device_ptr<const float>(),
        .to = workspace_.floats(copy.to),
        .n_rows = n_rows(copy.to),
        .row_ids = copy.gathers_output_rows ? workspace_.step().output_rows : nullptr,
        .vectors_per_row = copy.vectors_per_row,
        .from_width = copy.from_width,
        .from_begin = copy.from_begin,
        .to_width = copy.to_width,
        .to_begin = copy.to_begin,
        .length = copy.length};
    const int64_t n_elems = int64_t{max_rows(copy.to)} * copy.vectors_per_row * copy.length;
    if (Status s = emit_threads("row_ops", "copy_parts", params, n_elems); !s.ok()) return s;
  }
  return ok_status();
}

Status Lowering::lower(const gpu::NormCall& call) {
  const Node& n = *call.node;
  const zinc::NormParams& norm = n.as<zinc::NormParams>();
  simt::NormParams params{};
  params.x = workspace_.floats(n.in[0]);
  params.weight = vector(n.in[1]);
  params.n_rows = n_rows(n.in[0]);
  params.width = call.width;
  params.vectors_per_row = call.vectors_per_row;
  params.eps = norm.eps;
  params.is_l2 = norm.kind == NormKind::l2 ? 1 : 0;
  fill_output(call.out, params);
  const int64_t rows = int64_t{max_rows(n.in[0])} * params.vectors_per_row;
  if (params.width <= simt::kSegmentElems) return emit_warps("row_ops", "norm_heads", params, rows);
  return emit({"row_ops", ""}, "norm_rows", params, rows);
}

Status Lowering::lower(const gpu::QuantizeCall& call) {
  const simt::QuantizeParams params{.x = workspace_.floats(call.x),
                                    .out = q8_buffers(call.to, call.x),
                                    .n_rows = n_rows(call.x),
                                    .vectors_per_row = static_cast<int>(width(call.x) / call.to.n_in),
                                    .width = call.to.n_in,
                                    .q8_block = call.to.block};
  const int64_t n_segments = ceil_div(call.to.n_in, simt::kSegmentElems);
  return emit_warps("row_ops", "quantize_rows", params,
                    int64_t{max_rows(call.x)} * params.vectors_per_row * n_segments);
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
  params.scale = call.mul ? vector(call.mul->in[1]) : nullptr;
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
  const int64_t n_segments = ceil_div(params.width, simt::kWarps * simt::kSegmentElems);
  const std::string shape = fmt::format("inline constexpr int kResidualSegments = {};", n_segments);
  return emit({"norm_residual", "", shape}, "norm_residual", params, is_decode() ? one_per_sm(1) : params.max_rows);
}

Status Lowering::lower(const gpu::RopeCall& call) {
  const Node& n = *call.node;
  const RopeTable& table = workspace_.rope_table(n);
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

Status Lowering::lower(const gpu::GatedActCall& call) {
  const Node& n = *call.node;
  simt::GatedActParams params{};
  params.gate = workspace_.floats(n.in[0]);
  params.up = workspace_.floats(n.in[1]);
  params.n_rows = n_rows(n.out[0]);
  params.act = static_cast<int>(n.as<GatedActParams>().act);
  params.scalar_gate = width(n.in[0]) == 1 && width(n.out[0]) > 1 ? 1 : 0;
  params.width = call.width;
  params.vectors_per_row = call.vectors_per_row;
  fill_output(call.out, params);
  return emit_warps("row_ops", "gated_act", params,
                    int64_t{max_rows(n.out[0])} * params.vectors_per_row * ceil_div(params.width, simt::kSegmentElems));
}

Status Lowering::lower(const gpu::ElementwiseCall& call) {
  const Node& n = *call.node;
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

Status Lowering::lower(const gpu::SampleCall& call) {
  const Node& n = *call.node;
  const simt::SampleParams params{.step = workspace_.step(),
                                  .sampling = workspace_.sampling_params(),
                                  .logits = workspace_.floats(n.in[0]),
                                  .chunk_best = workspace_.chunk_best(),
                                  .chunks = workspace_.sample_chunks(),
                                  .chunk_masses = workspace_.chunk_masses(),
                                  .best = workspace_.best().device_ptr<float>(),
                                  .best_id = workspace_.best_id().device_ptr<int>(),
                                  .sampled = workspace_.sampled().device_ptr<int>(),
                                  .vocab = static_cast<int>(width(n.in[0]))};
  const KernelProgram program{"sample", ""};
  if (Status s = emit(program, "sample_parts", params, simt::kSampleSplits, sizes_.max_outputs); !s.ok()) return s;
  Launch rows = Launch::of(nullptr, params, 1);
  rows.threads = simt::kSampleThreads;
  return add(program, "sample_rows", rows, sizes_.max_outputs, 1, 1, 0);
}

}  // namespace zinc::cuda
