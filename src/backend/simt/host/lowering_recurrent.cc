#include "backend/simt/host/lowering.h"

#include <algorithm>

namespace zinc::simt::host {
namespace {

// Shared memory of the kernels of recurrent_chunks.cu: PrepareSmem, ChunkSmem.
constexpr int kChunkDims = 128;
constexpr size_t kChunk = simt::kDeltaChunk, kRow = kChunkDims + 4, kPairs = kChunk * (kChunk + 4);
constexpr size_t kPrepareBytes = sizeof(float) * (2 * kChunk * kRow + kPairs + 3 * kChunk);
constexpr size_t kChunkBytes =
    sizeof(float) * (3 * kChunk * kRow + kPairs + (kChunkDims + kChunk) * simt::kDeltaColumns + 3 * kChunk);

}  // namespace

simt::ConvParams Lowering::conv_params(const Node& n) const {
  simt::ConvParams params{};
  params.step = workspace_.step();
  params.slot_floats = static_cast<long long>(cache_.slot_bytes(n.as<ShortConvParams>().cache_layer) / sizeof(float));
  fill_conv(n, params);
  return params;
}

Status Lowering::lower(const gpu::ShortConvCall& call) {
  const simt::ConvParams params = conv_params(*call.node);
  if (Status s = check_conv(params); !s.ok()) return s;
  return emit({"recurrent", ""}, "short_conv", params, ceil_div(params.n_channels, simt::kThreads),
              workspace_.max_seqs(), ceil_div(sizes_.max_tokens, simt::kConvTokens));
}

simt::DeltaParams Lowering::delta_params(const Node& n) const {
  simt::DeltaParams params{};
  params.step = workspace_.step();
  params.slot_floats = static_cast<long long>(cache_.slot_bytes(n.as<DeltaNetParams>().cache_layer) / sizeof(float));
  fill_delta(n, params);
  params.prepared = workspace_.delta_prepared().device_ptr<float>();
  return params;
}

// In this class of steps, on this GPU.
bool Lowering::can_scan_chunks(const simt::DeltaParams& params) const {
  return sizes_.max_tokens >= simt::kDeltaChunk && params.k_dim % 8 == 0 && params.k_dim <= kChunkDims &&
         params.v_dim <= kChunkDims && kChunkBytes <= static_cast<size_t>(device_.max_shared_bytes);
}

Status Lowering::lower(const gpu::DeltaNetCall& call) {
  simt::DeltaParams params = delta_params(*call.node);
  if (Status s = check_delta(params); !s.ok()) return s;
  params.leaves_chunked = can_scan_chunks(params) ? 1 : 0;
  const char* kernel = params.k_dim <= 128 ? "delta_net_128" : "delta_net_256";
  if (Status s =
          emit({"recurrent", ""}, kernel, params, ceil_div(params.v_dim, 32), params.v_heads, workspace_.max_seqs());
      !s.ok()) {
    return s;
  }
  return params.leaves_chunked ? lower_delta_chunks(params) : ok_status();
}

// The sequences with full chunks. The scan has one wave of blocks, which take the sequences in turn: usually there are
// few.
Status Lowering::lower_delta_chunks(const simt::DeltaParams& params) {
  const int64_t n_chunks = sizes_.max_tokens / simt::kDeltaChunk;
  if (Status s = emit({"recurrent_chunks", ""}, "delta_prepare", params, n_chunks, params.v_heads, 1, kPrepareBytes);
      !s.ok()) {
    return s;
  }
  const int64_t n_tiles = ceil_div(params.v_dim, simt::kDeltaColumns);
  const int64_t n_seqs = std::clamp<int64_t>(device_.n_sms / (n_tiles * params.v_heads), 1,
                                             std::min<int64_t>(n_chunks, workspace_.max_seqs()));
  return emit({"recurrent_chunks", ""}, "delta_chunks", params, n_tiles, params.v_heads, n_seqs, kChunkBytes);
}

Status Lowering::lower(const gpu::DeltaDecodeCall& call) {
  const simt::DeltaLayerParams params = layer_params(call);
  if (Status s = check_delta(params.delta); !s.ok()) return s;
  constexpr int kColumns = 32, kKeys = 128;
  const bool has_exact_dims = params.delta.k_dim == kKeys && params.delta.v_dim % kColumns == 0;
  const char* general_kernel = params.delta.k_dim <= kKeys ? "delta_decode_upto_128" : "delta_decode_upto_256";
  const int64_t n_tiles = ceil_div(params.delta.v_dim, kColumns) * params.delta.v_heads;
  return emit({"recurrent", ""}, has_exact_dims ? "delta_decode_128" : general_kernel, params, one_per_sm(n_tiles));
}

simt::DeltaLayerParams Lowering::layer_params(const gpu::DeltaDecodeCall& call) const {
  return {.delta = delta_params(*call.delta),
          .conv = conv_params(*call.conv),
          .norm_eps = call.q_norm->as<zinc::NormParams>().eps,
          .n_seq_rows = 0,
          .q = nullptr,
          .k = nullptr,
          .v = nullptr};
}

Status Lowering::lower(const gpu::DeltaLayerCall& call) {
  simt::DeltaLayerParams params = layer_params(call.rule);
  simt::DeltaParams& delta = params.delta;
  if (Status s = check_conv(params.conv); !s.ok()) return s;
  if (Status s = check_delta(delta); !s.ok()) return s;
  delta.leaves_chunked = can_scan_chunks(delta) ? 1 : 0;
  constexpr int kKeys = 128, kTaps = 4;
  const bool is_exact = delta.k_dim == kKeys && delta.v_dim == kKeys && params.conv.n_taps == kTaps;
  const char* general_kernel = delta.k_dim <= kKeys ? "delta_layer_upto_128" : "delta_layer_upto_256";
  const int n_columns = is_exact ? 128 : delta.k_dim <= kKeys ? 64 : 32;  // of a block
  // A few waves of blocks, so that a step of few sequences has few idle ones.
  const int64_t n_blocks = ceil_div(delta.v_dim, n_columns) * delta.v_heads;
  int64_t n_rows = std::clamp<int64_t>(8 * device_.n_sms / n_blocks, 1, workspace_.max_seqs());
  params.n_seq_rows = static_cast<int>(n_rows);
  if (delta.leaves_chunked) {
    n_rows += ceil_div(sizes_.max_tokens, simt::kConvTokens);
    params.q = workspace_.floats(call.rule.delta->in[0]);
    params.k = workspace_.floats(call.rule.delta->in[1]);
    params.v = workspace_.floats(call.rule.delta->in[2]);
  }
  if (Status s = emit({"delta_layer", ""}, is_exact ? "delta_layer_128" : general_kernel, params, n_blocks, n_rows);
      !s.ok()) {
    return s;
  }
  if (delta.leaves_chunked) {
    if (Status s = lower_delta_chunks(delta); !s.ok()) return s;
  }
  return lower_delta_finish(call, params.conv);
}

Status Lowering::lower_delta_finish(const gpu::DeltaLayerCall& call, const simt::ConvParams& conv) {
  simt::DeltaFinishParams params{};
  params.conv = conv;
  if (call.gate) {
    const Value x = call.rule.delta->out[0];
    params.x = at(x);
    params.gate = at(call.gate->in[0]);
    params.norm_weight = vector(call.norm->in[1]);
    params.n_rows = n_rows(x);
    params.width = static_cast<int>(width(x));
    params.head_dim = static_cast<int>(inner(x));
    params.act = act_of(*call.gate);
    params.norm_eps = call.norm->as<zinc::NormParams>().eps;
    gpu::Accesses accesses;
    fill_output(call.out, params, accesses);
    const int64_t n_segments = ceil_div(params.width, simt::kSegmentElems);
    params.n_norm_blocks = static_cast<int>(ceil_div(max_rows(x) * n_segments, simt::kWarps));
  }
  const int64_t n_conv_blocks = workspace_.max_seqs() * ceil_div(conv.n_channels, simt::kFinishChannels);
  return emit({"delta_layer", ""}, "delta_finish", params, params.n_norm_blocks + n_conv_blocks);
}

}  // namespace zinc::simt::host
