// After delta_layer.comp: RMSNormGated of the heads, one warp per segment of a row, optionally quantized to 8 bits; and the state of
// the convolution. Grid: first the workgroups of the norm, then kFinishChannels channels of a sequence each.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "short_conv.glsl"
#include "counter_sync.glsl"

const int kStateChannels = kFinishChannels / kThreads;
#include "conv_state.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { DeltaFinishParams p; };

void store_conv_states(int workgroup) {
  int n_tiles = (p.conv.n_channels + kFinishChannels - 1) / kFinishChannels, seq = workgroup / n_tiles;
  if (seq >= step_count(kSeqs)) return;
  store_states(p.conv, conv_seq(seq), workgroup % n_tiles * kFinishChannels + thread_id());
}

void norm_heads(int workgroup) {
  int n_segments = (p.width + kSegmentElems - 1) / kSegmentElems, n = rows_of(p.n_rows) * n_segments;
  int index = workgroup * kWarps + warp_id(), row = min(index, n - 1) / n_segments, segment = index % n_segments;
  if (workgroup * kWarps >= n) return;
  bool is_in_bounds = index < n;
  int offset = is_in_bounds ? segment * kSegmentElems + lane_id() * 8 : p.width + 8;
  uint64_t begin = uint64_t(row) * uint64_t(p.width) * 4ul;
  Vec8 x = load_vec8_coherent(p.x + begin, offset, p.width), gate = load_vec8_coherent(p.gate + begin, offset, p.width);
  float factor = rms_factor(clustered_sum(sum_squares(x, 0), p.head_dim / 8), p.head_dim, p.norm_eps);
  Vec8 y = apply_norm(x, factor, p.norm_weight, offset % p.head_dim, p.head_dim);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    y.a[i] = gated(p.act, gate.a[i], y.a[i]);
    y.b[i] = gated(p.act, gate.b[i], y.b[i]);
  }
  if (offset >= p.width) y = Vec8(vec4(0), vec4(0));  // act(0) * 0 need not be zero
  if (is_in_bounds && p.out_ != 0ul) store_vec8(p.out_ + begin, offset, p.width, y);
  if (p.q8.block == 0) return;
  Q8Vec8 quantized = quantize_vec8(y, p.q8.block);
  if (is_in_bounds) store_q8(quantized, p.q8, row, segment);
}

void main() {
  int workgroup = int(gl_WorkGroupID.x) - p.n_norm_workgroups;
  wait_producers(p.sync);
  if (workgroup < 0) {
    norm_heads(int(gl_WorkGroupID.x));
  } else {
    store_conv_states(workgroup);
  }
  signal_done(p.sync);
}
