#include "backend/simt/host/workspace.h"

#include <algorithm>

#include "backend/simt/host/attention_shape.h"
#include "backend/simt/host/gemm_small_shape.h"
#include "backend/simt/host/gemv_schedule.h"
#include "base/ceil_div.h"

namespace zinc::simt::host {
namespace {

// Rows of the image, in whole tiles; 0: there is none.
int64_t image_rows(const DeviceLimits& device, int max_tokens, const gpu::QuantizedActivation& activation,
                   size_t n_rows) {
  constexpr int64_t kMaxTileColumns = 64;
  const bool has_image = device.has_wgmma() && max_tokens <= kMaxGemmSmallWgmmaTokens &&
                         activation.block == simt::kSegmentElems && n_rows > kMinGemmSmallColumns;
  return has_image ? ceil_div(static_cast<int64_t>(n_rows), kMaxTileColumns) * kMaxTileColumns : 0;
}

// A matmul as a launch of the gemv kernels, as large as fusion may make it.
GemvWork gemv_work(const Graph& graph, const gpu::GraphUses& uses, const gpu::Weights& weights, const Node& matmul) {
  const gpu::DeviceMatrix& matrix = *weights.matrix(graph.info(matmul.in[1]).name);
  const Node* producer = uses.producer(matmul.in[0]);
  if (producer && producer->op == Op::rows) producer = uses.producer(producer->in[0]);
  const bool is_normed = producer && producer->op == Op::norm;
  const bool has_experts = matmul.op == Op::moe_linear;
  const int n_used = has_experts ? static_cast<int>(graph.info(matmul.in[2]).shape.elems()) : 0;
  const bool is_down = has_experts && graph.info(matmul.in[0]).shape.n_dims() > 1;
  const bool is_router =
      std::ranges::any_of(uses.readers(matmul.out[0]), [](const Node* reader) { return reader->op == Op::moe_route; });
  const int n_matrices = is_down ? n_used + 1 : is_normed ? 2 : 1;  // with the shared expert; gate and up
  return {.n_in = matrix.n_in,
          .n_matrices = n_matrices,
          .n_input_rows = is_down ? n_matrices : 1,
          .n_normed_rows = is_normed ? 1 : 0,
          .n_selected = is_down ? 0 : n_used,
          .n_routed_experts = has_experts ? matrix.n_experts : 0,
          .parts = {{matrix.format, matrix.n_out, is_router && matrix.format->q8_block == 0}}};
}

// Whether the matmuls of one row fit a block's shared memory. Long rows of floats, and long rows on Turing, do not.
bool fits_gemv(const Graph& graph, const gpu::Weights& weights, const DeviceLimits& device) {
  const gpu::GraphUses uses(graph, /*keeps_values=*/false);
  return std::ranges::all_of(graph.nodes(), [&](const Node& n) {
    if (n.op != Op::linear && n.op != Op::moe_linear) return true;
    const GemvWork work = gemv_work(graph, uses, weights, n);
    const size_t static_bytes = 512 + 8 * static_cast<size_t>(work.n_routed_experts);
    return GemvSchedule(work, device).shared_bytes() + static_bytes <= static_cast<size_t>(device.max_shared_bytes);
  });
}

// The gemms on tensor cores and of float weights have no gated epilogue: a launch of its own also quantizes the result,
// which the next matmul would need another one for.
bool has_gated_epilogue(const DeviceLimits& device, int max_tokens, bool has_decode_kernels, const PanelFormat& format,
                        bool has_experts, int64_t n_rows) {
  if (format.q8_block == 0) return has_experts || (max_tokens == 1 && has_decode_kernels && n_rows == 1);
  if (runs_gemm_small(device, max_tokens)) return false;
  if (format.q8_block > 0 && has_experts && may_run_gemm_small_experts(device, max_tokens)) return false;
  if (n_rows <= gpu::kMaxSplitTokens) return true;
  return !device.has_tensor_cores() || gemm_shared_bytes(format) > static_cast<size_t>(device.max_shared_bytes);
}

// Not in steps of many tokens of one sequence.
bool has_split_rows(const Bucket& bucket) { return bucket.max_tokens <= gpu::kMaxSplitTokens || bucket.max_seqs > 1; }

// gemm_wgmma.cu: q as bf16 if a scale has 32 elements, else the f16 sums of groups. gemm_small_wgmma.cu: the image.
size_t q8_aux_bytes(const DeviceLimits& device, int max_tokens, const gpu::QuantizedActivation& activation,
                    size_t n_rows) {
  const size_t n_segments = static_cast<size_t>(ceil_div(activation.n_in, simt::kSegmentElems));
  if (!device.has_wgmma()) return 0;
  const int64_t n_image_rows = image_rows(device, max_tokens, activation, n_rows);
  const size_t image = static_cast<size_t>(
      simt::image_bytes(static_cast<int>(n_segments) * simt::kSegmentElems, static_cast<int>(n_image_rows)));
  if (runs_gemm_small(device, max_tokens)) return image;
  const size_t n_aux = activation.block == simt::kGroupElems ? simt::kSegmentElems : 2 * simt::kSegmentGroups;
  return image + n_rows * n_segments * n_aux * sizeof(uint16_t);
}

// attention_prefill with a quantized KV cache has no registers left for it.
bool quantizes_attention(const Graph& graph, const gpu::Cache& cache, const DeviceLimits& device, const Bucket& bucket,
                         const Node& attention) {
  if (gpu::has_prefill_rows(gpu::class_of(bucket)) && cache.kv_format().name != "f16") return false;
  const simt::KvLayer kv = simt_kv_layer(cache.kv_layer(attention.as<zinc::AttentionParams>().cache_layer));
  const int heads_per_kv_head = static_cast<int>(graph.info(attention.in[0]).shape[0]) / kv.kv_heads;
  return mma_warps(kv, cache.kv_format(), device) > 0 && has_whole_segments(kv, heads_per_kv_head, device);
}

// Few rows by gemv.cu: the rows, their partial sums and a pipeline that is long enough share half of an SM's memory.
constexpr int kMaxGemvRowSegments = 192;
// Norms of few rows in its prologue, which holds them in registers.
constexpr int64_t kMaxNormedElems = 16384;

gpu::KernelLimits kernel_limits(const DeviceLimits& device, int max_tokens, bool has_decode_kernels) {
  const bool quantizes_inline = !runs_gemm_small(device, max_tokens);
  return {.max_warp_head_dim = simt::kSegmentElems,  // one warp per head
          .has_gated_attention = true,
          .max_matmul_parts = simt::kMaxGemvParts,
          .max_launch_parts = simt::kMaxParts,
          .has_decode_kernels = has_decode_kernels,
          .has_mixed_gemv = true,
          .max_gemv_rows = max_gemv_rows(device),
          .max_gemv_row_segments = kMaxGemvRowSegments,
          .max_normed_elems = kMaxNormedElems,
          .has_q8_norm_prologue = quantizes_inline,
          .gate_up_row_multiple = simt::kPanelRows,
          .has_gated_epilogue =
              [=](const PanelFormat& format, bool has_experts, int64_t n_rows) {
                return has_gated_epilogue(device, max_tokens, has_decode_kernels, format, has_experts, n_rows);
              },
          .pairs_gated_acts = true,
          .max_inline_q8_rows = quantizes_inline ? gpu::kMaxSplitTokens : 0,
          .producers_always_quantize = true,
          .max_experts_used = simt::kMaxExpertsUsed,
          .max_experts = simt::kMaxExperts,
          .max_combine_elems = int64_t{simt::kMaxResidualSegments} * simt::kWarps * simt::kSegmentElems,
          .can_join_router = true,
          .has_delta_layers = true,
          .max_residual_elems = int64_t{simt::kMaxResidualSegments} * simt::kWarps * simt::kSegmentElems,
          .norms_after_residual = true};
}

}  // namespace

gpu::KernelFormats kernel_formats(std::string_view backend) {
  static const std::vector<gpu::KvFormat> kKvFormats = gpu::kv_formats_of(kv_format_names());
  return {.backend = backend, .has_panels = has_format, .kv_formats = kKvFormats};
}

bool runs_gemm_small(const DeviceLimits& device, int max_tokens) {
  return device.has_tensor_cores() && device.max_shared_bytes >= kGemmSmallSharedBytes && max_tokens > 1 &&
         max_tokens <= kMaxGemmSmallTokens;
}

bool may_run_gemm_small_experts(const DeviceLimits& device, int max_tokens) {
  constexpr int kMaxTokens = 512;
  return device.has_tensor_cores() && device.max_shared_bytes >= kGemmSmallSharedBytes && max_tokens > 1 &&
         max_tokens <= kMaxTokens;
}

// Two pipeline stages: a K segment of weights and activations, with their scales and sums.
size_t gemm_shared_bytes(const PanelFormat& format) {
  const int weights = simt::kTileRows * (format.header_bytes + simt::kSegmentGroups * format.group_bytes);
  const int token = simt::kSegmentElems + 16 + 2 * simt::kSegmentGroups * static_cast<int>(sizeof(float));
  return 2 * static_cast<size_t>(weights + simt::kTileTokens * token);
}

simt::Matrix simt_matrix(const gpu::DeviceMatrix& matrix) {
  return {.bytes = reinterpret_cast<const unsigned char*>(matrix.bytes),
          .panel_bytes = matrix.panel_bytes,
          .matrix_bytes = matrix.matrix_bytes,
          .n_in = matrix.n_in,
          .n_out = matrix.n_out,
          .n_segments = matrix.n_segments,
          .n_last_groups = matrix.n_last_groups};
}

simt::KvLayer simt_kv_layer(const gpu::KvLayer& layer) {
  return {.pages = reinterpret_cast<unsigned char*>(layer.pages),
          .page_bytes = static_cast<long long>(layer.page_bytes),
          .head_bytes = layer.head_bytes,
          .value_begin = layer.value_begin,
          .kv_heads = layer.kv_heads,
          .k_dim = layer.k_dim,
          .v_dim = layer.v_dim,
          .group = layer.group};
}

Result<std::unique_ptr<Workspace>> Workspace::allocate(const Graph& graph, const gpu::Weights& weights,
                                                       const gpu::Cache& cache, gpu::Device& device,
                                                       const DeviceLimits& limits, const Bucket& bucket) {
  const bool is_small = runs_gemm_small(limits, bucket.max_tokens);
  const bool has_decode_kernels = bucket.max_tokens <= max_gemv_rows(limits) && fits_gemv(graph, weights, limits);
  gpu::WorkspaceOptions options{.kernels = kernel_limits(limits, bucket.max_tokens, has_decode_kernels),
                                .upload = {.attention_blocks = has_split_rows(bucket) ? split_kv_blocks(limits) : 0},
                                .expert_tile_rows = is_small || may_run_gemm_small_experts(limits, bucket.max_tokens)
                                                        ? kMinGemmSmallColumns
                                                        : simt::kTileTokens,
                                .sample_splits = simt::kSampleSplits,
                                .q8_aux_bytes = [limits, max_tokens = bucket.max_tokens](
                                                    const gpu::QuantizedActivation& activation, size_t n_rows) {
                                  return q8_aux_bytes(limits, max_tokens, activation, n_rows);
                                }};
  options.kernels.quantizes_attention = [&graph, &cache, limits, bucket](const Node& attention) {
    return quantizes_attention(graph, cache, limits, bucket, attention);
  };
  std::unique_ptr<Workspace> workspace(new Workspace(graph, weights, cache, bucket, options));
  workspace->has_decode_kernels_ = has_decode_kernels;
  workspace->is_in_mma_order_ = is_small;
  workspace->limits_ = limits;
  if (Status s = workspace->allocate_buffers(device); !s.ok()) return s.error();
  if (Status s = workspace->allocate_step(device); !s.ok()) return s.error();
  if (Status s = workspace->allocate_router(device); !s.ok()) return s.error();
  if (Status s = workspace->make_rope_tables(device); !s.ok()) return s.error();
  return workspace;
}

Status Workspace::allocate_step(gpu::Device& device) {
  const size_t hidden_bytes = hidden_in_floats() * static_cast<size_t>(bucket_.max_tokens) * sizeof(float);
  if (Status s = allocate_buffer(device, hidden_in_, hidden_bytes, "hidden states"); !s.ok()) return s;
  if (Status s = allocate_buffer(device, upload_, layout().n_ints * sizeof(int), "step inputs"); !s.ok()) {
    return s;
  }
  const size_t n_outputs = static_cast<size_t>(std::max(1, bucket_.max_outputs));
  if (Status s = allocate_buffer(device, sampled_, n_outputs * sizeof(int), "sampling"); !s.ok()) return s;
  const size_t n_chunks = sample_chunks().size() / sizeof(int);
  if (Status s = allocate_buffer(device, chunk_masses_, n_chunks * sizeof(unsigned long long), "sampling"); !s.ok()) {
    return s;
  }
  const int* base = upload_.device_ptr<const int>();
  step_ = {.counts = base,
           .tokens = base + layout().tokens,
           .positions = base + layout().positions,
           .seq_of_token = base + layout().seq_of_token,
           .seq_begin = base + layout().seq_begin,
           .slots = base + layout().slots,
           .row_slots = base + layout().row_slots,
           .output_rows = base + layout().output_rows,
           .first_column = base + layout().first_column,
           .last_sampled = reinterpret_cast<int*>(cache_.last_sampled()),
           .max_seqs = bucket_.max_seqs};
  return ok_status();
}

Status Workspace::allocate_router(gpu::Device& device) {
  size_t n_gates = 0;
  for (const Node& node : graph_.nodes()) {
    if (node.op != Op::moe_route) continue;
    const size_t n_experts = static_cast<size_t>(graph_.info(node.in[0]).shape.elems());
    const Node& router = *uses().producer(node.in[0]);
    const size_t n_in = static_cast<size_t>(graph_.info(router.in[0]).shape.elems());
    n_gates = std::max(n_gates, n_in / simt::kSegmentElems + 1);
    n_router_floats_ = std::max(n_router_floats_, n_experts * n_gates);
  }
  // Of each row in steps that run gemv kernels.
  const size_t n_rows = bucket_.max_tokens <= max_gemv_rows(limits_) ? static_cast<size_t>(bucket_.max_tokens) : 1;
  n_router_floats_ *= n_rows;
  if (Status s = allocate_buffer(device, route_blocks_done_, n_gates > 0 ? sizeof(int) : 0, "experts"); !s.ok())
    return s;
  return allocate_buffer(device, router_partial_, (n_router_floats_ + n_rows * n_gates) * sizeof(float), "experts");
}

Status Workspace::make_rope_tables(gpu::Device& device) {
  for (const std::vector<RopeRotation>& rotations : rope_rotations()) {
    std::vector<double> all;  // frequencies of all scalings
    std::vector<float> amplitudes;
    for (const RopeRotation& rotation : rotations) {
      all.insert(all.end(), rotation.frequencies.begin(), rotation.frequencies.end());
      amplitudes.push_back(rotation.amplitude);
    }
    const size_t n_pairs = rotations[0].frequencies.size();
    const size_t table_bytes = n_pairs * 2 * sizeof(float) * static_cast<size_t>(bucket_.max_tokens);
    ZINC_TRY(frequencies, device.allocate_table(std::as_bytes(std::span(all)), "RoPE tables"));
    ZINC_TRY(table, device.allocate(table_bytes, "RoPE tables"));
    rope_tables_.push_back(
        {std::move(frequencies), std::move(table), static_cast<int>(n_pairs), std::move(amplitudes)});
  }
  return ok_status();
}

simt::ExpertTiles Workspace::expert_tiles() const {
  const gpu::ExpertTiles tiles = gpu::Workspace::expert_tiles();
  return {.order = reinterpret_cast<int*>(tiles.sorted_pairs),
          .tiles = reinterpret_cast<int*>(tiles.tiles),
          .n_tiles = reinterpret_cast<int*>(tiles.n_tiles)};
}

simt::Q8Activation Workspace::quantized(const gpu::QuantizedActivation& activation) const {
  const gpu::Q8Buffers buffers = q8_buffers(activation);
  simt::Q8Activation out{.q = reinterpret_cast<signed char*>(buffers.q),
                         .scale = reinterpret_cast<float*>(buffers.scale),
                         .sum = reinterpret_cast<int*>(buffers.sum),
                         .wgmma_aux = nullptr,
                         .stride = buffers.stride,
                         .is_in_mma_order = is_in_mma_order_ ? 1 : 0};
  const int64_t n_image_rows = image_rows(limits_, bucket_.max_tokens, activation, buffers.n_rows);
  out.image_rows = static_cast<int>(n_image_rows);
  if (n_image_rows > 0) out.image = reinterpret_cast<unsigned char*>(buffers.aux);
  if (!is_in_mma_order_ && buffers.aux != 0) {
    out.wgmma_aux = reinterpret_cast<unsigned short*>(
        buffers.aux + static_cast<uint64_t>(simt::image_bytes(out.stride, out.image_rows)));
  }
  return out;
}

}  // namespace zinc::simt::host
