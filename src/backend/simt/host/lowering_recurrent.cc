#include "backend/simt/host/lowering.h"

namespace zinc::simt::host {
namespace {

// Shared memory of the kernels of recurrent_chunks.cu: PrepareSmem, ChunkSmem.
constexpr int kChunkDims = 128;
constexpr size_t kChunk = simt::kDeltaChunk, kRow = kChunkDims + 4, kPairs = kChunk * (kChunk + 4);
constexpr size_t kPrepareBytes = sizeof(float) * (2 * kChunk * kRow + kPairs + 3 * kChunk);
constexpr size_t kChunkBytes =
    sizeof(float) * (3 * kChunk * kRow + kPairs + (kChunkDims + kChunk) * simt::kDeltaColumns + 3 * kChunk);

bool can_scan_chunks(const simt::DeltaParams& params, const DeviceLimits& device) {
  return params.k_dim % 8 == 0 && params.k_dim <= kChunkDims && params.v_dim <= kChunkDims &&
         kChunkBytes <= static_cast<size_t>(device.max_shared_bytes);
}

}  // namespace

simt::ConvParams Lowering::conv_params(const Node& n) const {
  simt::ConvParams params{};
  params.step = workspace_.step();
  params.slot_floats = static_cast<long long>(cache_.state_bytes() / sizeof(float));
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
  params.slot_floats = static_cast<long long>(cache_.state_bytes() / sizeof(float));
  fill_delta(n, params);
  return params;
}

Status Lowering::lower(const gpu::DeltaNetCall& call) {
  const simt::DeltaParams params = delta_params(*call.node);
  if (Status s = check_delta(params); !s.ok()) return s;
  const char* scan_kernel = params.k_dim <= 128 ? "delta_net_128" : "delta_net_256";
  if (sizes_.max_tokens >= simt::kDeltaChunk && can_scan_chunks(params, device_)) {
    return lower_delta_chunks(params, scan_kernel);
  }
  return emit({"recurrent", ""}, scan_kernel, params, ceil_div(params.v_dim, 32), params.v_heads,
              workspace_.max_seqs());
}

Status Lowering::lower_delta_chunks(simt::DeltaParams params, const char* scan_kernel) {
  const auto emit_scan = [&](simt::DeltaTokens part) {
    params.part = part;
    return emit({"recurrent", ""}, scan_kernel, params, ceil_div(params.v_dim, 32), params.v_heads,
                workspace_.max_seqs());
  };
  params.prepared = workspace_.delta_prepared().device_ptr<float>();
  if (Status s = emit_scan(simt::kBeforeChunks); !s.ok()) return s;
  if (Status s = emit({"recurrent_chunks", ""}, "delta_prepare", params, sizes_.max_tokens / simt::kDeltaChunk,
                      params.v_heads, 1, kPrepareBytes);
      !s.ok()) {
    return s;
  }
  if (Status s = emit({"recurrent_chunks", ""}, "delta_chunks", params, ceil_div(params.v_dim, simt::kDeltaColumns),
                      params.v_heads, workspace_.max_seqs(), kChunkBytes);
      !s.ok()) {
    return s;
  }
  return emit_scan(simt::kAfterChunks);
}

Status Lowering::lower(const gpu::DeltaDecodeCall& call) {
  const simt::DeltaDecodeParams params{.delta = delta_params(*call.delta),
                                       .conv = conv_params(*call.conv),
                                       .norm_eps = call.q_norm->as<zinc::NormParams>().eps};
  if (Status s = check_delta(params.delta); !s.ok()) return s;
  constexpr int kColumns = 32, kKeys = 128;
  const bool has_exact_dims = params.delta.k_dim == kKeys && params.delta.v_dim % kColumns == 0;
  const char* general_kernel = params.delta.k_dim <= kKeys ? "delta_decode_upto_128" : "delta_decode_upto_256";
  const int64_t n_tiles = ceil_div(params.delta.v_dim, kColumns) * params.delta.v_heads;
  return emit({"recurrent", ""}, has_exact_dims ? "delta_decode_128" : general_kernel, params, one_per_sm(n_tiles));
}

}  // namespace zinc::simt::host
