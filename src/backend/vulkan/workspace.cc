#include "backend/vulkan/workspace.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "backend/vulkan/kernels.h"

namespace zinc::vulkan {
namespace {

// Float experts have no cooperative-matrix kernel, and all experts of a model use the same tile size.
bool has_matrix_experts(const Graph& graph, const gpu::Weights& weights, const Capabilities& device) {
  return device.coopmat_k > 0 && std::ranges::all_of(graph.nodes(), [&](const Node& n) {
           return n.op != Op::moe_linear || weights.matrix(graph.info(n.in[1]).name)->format->q8_block > 0;
         });
}

// Tiles of experts in steps of the bucket. On cooperative matrices 16 rows cost as much as one: they pay if an expert
// has several.
int expert_tile_rows(const Graph& graph, const Capabilities& device, const Bucket& bucket, bool has_matrix_experts) {
  if (!has_matrix_experts) return tuning_of(device).prefill_rows;
  if (bucket.max_tokens > kMaxSmallRows) return kMatrixExpertRows;
  int64_t rows_per_expert = 0;  // on average
  for (const Node& n : graph.nodes()) {
    if (n.op != Op::moe_route) continue;
    const int64_t n_pairs = bucket.max_tokens * n.as<MoeRouteParams>().n_used;
    rows_per_expert = std::max(rows_per_expert, n_pairs / graph.info(n.in[0]).shape.elems());
  }
  return rows_per_expert <= kDotExpertRows ? kDotExpertRows : kSmallTileRows;
}

// has_small_experts: gemm_small.comp multiplies them.
gpu::KernelLimits kernel_limits(const Capabilities& device, const Bucket& bucket, bool has_small_experts) {
  // The activation after gemm_small.comp is a dispatch of its own, which quantizes its result for the next matmul.
  const bool has_coopmat = device.coopmat_k > 0;
  const auto has_gated_epilogue = [=](const PanelFormat& format, bool has_experts, int64_t n_rows) {
    if (!has_coopmat || format.q8_block == 0) return true;
    return has_experts ? !has_small_experts || n_rows <= kMaxSplitTokens : !uses_gemm_small(n_rows);
  };
  return {.max_warp_head_dim = 2 * kSegmentElems,
          .max_matmul_parts = kMaxParts,
          .max_launch_parts = kMaxParts,
          .has_output_row_prologue = true,
          .max_prologue_elems = max_float_inputs(device),
          .has_gated_epilogue = has_gated_epilogue,
          .max_inline_q8_rows = 1,
          .max_inline_q8_elems = kMaxQuantizedInputs,
          .max_experts_used = kMaxMoeDownExperts,
          .max_experts = kMaxExperts,
          .max_moe_down_elems = kMaxQuantizedInputs,
          .max_combine_elems = kMaxRegisterRow,
          // Steps in which a sequence can have a whole chunk run the chunked scan.
          .has_delta_layers = std::min(bucket.max_tokens, bucket.max_seq_tokens) < kDeltaChunk};
}

// (cos, sin) of n multiples of `step` positions.
void append_cos_sin(const RopeRotation& rotation, size_t n, double step, std::vector<float>& out) {
  for (size_t i = 0; i < n; ++i) {
    for (const double frequency : rotation.frequencies) {
      const double angle = static_cast<double>(i) * step * frequency;
      out.push_back(static_cast<float>(std::cos(angle) * rotation.amplitude));
      out.push_back(static_cast<float>(std::sin(angle) * rotation.amplitude));
    }
  }
}

// Of all RoPE scalings.
Result<Buffer> upload_table(gpu::Device& device, const std::vector<RopeRotation>& rotations, size_t n, double step) {
  const size_t n_floats = rotations.size() * n * rotations[0].frequencies.size() * 2;
  std::vector<float> table;
  table.reserve(n_floats);
  for (const RopeRotation& rotation : rotations) append_cos_sin(rotation, n, step, table);
  return device.allocate_table(std::as_bytes(std::span(table)), "RoPE tables");
}

}  // namespace

const gpu::KernelFormats& kernel_formats() {
  static const std::vector<gpu::KvFormat> kKvFormats = gpu::kv_formats_of(kv_format_names(), sizeof(float));
  static const gpu::KernelFormats kFormats{
      .backend = "vulkan", .pads_last_segment = true, .has_panels = has_format, .kv_formats = kKvFormats};
  return kFormats;
}

bool uses_gemm_small(int64_t n_rows) {
  constexpr int64_t kMaxDotRows = 4;
  return n_rows > kMaxDotRows && n_rows <= kMaxSmallRows;
}

int max_float_inputs(const Capabilities& device) {
  constexpr size_t kMaxInputs = 8192, kOtherSharedBytes = 6144;  // of the kernels, besides the row
  const size_t fits =
      device.shared_bytes > kOtherSharedBytes ? (device.shared_bytes - kOtherSharedBytes) / sizeof(float) : 0;
  return static_cast<int>(std::min(kMaxInputs, fits / kSegmentElems * kSegmentElems));
}

Result<std::unique_ptr<Workspace>> Workspace::allocate(const Graph& graph, const gpu::Weights& weights,
                                                       const gpu::Cache& cache, gpu::Device& device,
                                                       const Capabilities& capabilities, const Bucket& bucket) {
  const bool has_matrix_experts = vulkan::has_matrix_experts(graph, weights, capabilities);
  const int tile_rows = vulkan::expert_tile_rows(graph, capabilities, bucket, has_matrix_experts);
  // Few tokens of one sequence have a grid of KV splits; in larger steps most tokens are those of prompts.
  constexpr int kMaxUnitTokens = 256;
  const bool has_units = bucket.max_seqs > 1 && bucket.max_tokens <= kMaxUnitTokens;
  const gpu::WorkspaceOptions options{
      .kernels = kernel_limits(capabilities, bucket, has_matrix_experts && tile_rows == kSmallTileRows),
      .upload = {.has_logit_rows = true, .attention_blocks = has_units ? 2 * multiprocessors_of(capabilities) : 0},
      .expert_tile_rows = tile_rows,
      .sample_splits = kSampleSplits,
      .counts_rows = true};
  std::unique_ptr<Workspace> workspace(new Workspace(graph, weights, cache, bucket, options));
  workspace->has_matrix_experts_ = has_matrix_experts;
  if (Status s = workspace->allocate_buffers(device); !s.ok()) return s.error();
  ZINC_TRY(routed, device.allocate(sizeof(int), "experts"));
  workspace->routed_workgroups_ = std::move(routed);
  // Unshared, because counters are never reset: two classes would have to count in the same steps.
  const size_t counter_bytes = bucket.max_tokens <= kMaxSmallRows ? 4 * graph.nodes().size() * kCounterBytes : 0;
  ZINC_TRY(counters, device.allocate_unshared(counter_bytes, "synchronization counters"));
  workspace->sync_counters_ = std::move(counters);
  if (Status s = workspace->make_rope_buffers(device); !s.ok()) return s.error();
  return workspace;
}

Q8Activation Workspace::q8(const gpu::QuantizedActivation& activation) const {
  const gpu::Q8Buffers buffers = q8_buffers(activation);
  return {
      .q = buffers.q, .scale = buffers.scale, .sum = buffers.sum, .stride = buffers.stride, .block = activation.block};
}

// Of a sequence. Sliding windows do not bound its length.
size_t Workspace::max_positions() const {
  constexpr size_t kUnboundedPositions = size_t{1} << 22;  // if all layers have sliding windows
  size_t n_positions = 0;
  for (int g = 0; g < cache_.n_groups(); ++g) {
    if (cache_.window(g) == 0)
      n_positions = std::max(n_positions, static_cast<size_t>(cache_.n_pages(g)) * kPageTokens);
  }
  return n_positions == 0 ? kUnboundedPositions : n_positions;
}

Status Workspace::make_rope_buffers(gpu::Device& device) {
  for (const std::vector<RopeRotation>& rotations : rope_rotations()) {
    std::vector<RopeRotation> unscaled = rotations;  // the amplitude is in the coarse table
    for (RopeRotation& rotation : unscaled) rotation.amplitude = 1;
    ZINC_TRY(coarse, upload_table(device, rotations, n_coarse_positions(), kFinePositions));
    ZINC_TRY(fine, upload_table(device, unscaled, kFinePositions, 1));
    rope_buffers_.push_back({.coarse = std::move(coarse),
                             .fine = std::move(fine),
                             .n_pairs = static_cast<int>(rotations[0].frequencies.size()),
                             .n_scalings = static_cast<int>(rotations.size())});
  }
  return ok_status();
}

}  // namespace zinc::vulkan
