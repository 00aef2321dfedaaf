// Decode: down projections of the selected experts, their weighted sum, the gated shared expert and the residual in one
// dispatch: out[o] = residual + sum_u weight_u down_u[o] x_u + sigmoid(gate) shared[o] shared_expert_x. A workgroup has one
// panel of 32 outputs; its warps divide and prefetch the segments of all experts. Sums are made in the order of linear.comp,
// moe_combine.comp and gated_act.comp. REQUIRES: a quantized format.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "panel.glsl"
#include FORMAT
#include "matmul.glsl"

const int M = 1;
layout(constant_id = kSpecMoeDownSegments) const int kMaxExpertSegments = 32;  // capacity: segments of all experts
#include "segments.glsl"

layout(constant_id = kSpecMoeDownPrefetch) const int kPrefetchSegments = 3;  // segments prefetched per warp

shared float segment_values[kMaxExpertSegments * kPanelRows];
shared float expert_sums[(kMaxMoeDownExperts + 1) * kPanelRows];
shared int expert_ids[kMaxMoeDownExperts];
shared float router_weights[kMaxMoeDownExperts];

bool has_shared_expert() { return p.shared_expert_x != 0ul; }

uint64_t expert_segment_at(int expert_segment, int panel) {
  int n_segments = p.parts[0].n_segments, selected = expert_segment / n_segments, s = expert_segment % n_segments;
  uint64_t weights = selected < p.n_experts_used ? panel_at(p.parts[0], panel, expert_ids[selected])
                                                 : panel_at(p.parts[1], panel, 0);
  return weights + uint64_t(s) * uint64_t(kSegmentBytes);
}

void quantize_rows(int n_expert_segments) {
  const int kUnroll = 4;  // loads in flight
  int n_segments = p.parts[0].n_segments, n_in = p.parts[0].n_in;
  for (int first = warp_id(); first - warp_id() < n_expert_segments; first += kUnroll * kWarps) {
    Vec8 x[kUnroll];
    [[unroll]] for (int i = 0; i < kUnroll; ++i) {
      int expert_segment = first + i * kWarps, selected = min(expert_segment / n_segments, p.n_experts_used);
      int offset = expert_segment < n_expert_segments ? expert_segment % n_segments * kSegmentElems + lane_id() * 8 : n_in + 8;
      x[i] = load_vec8_coherent(
          selected < p.n_experts_used ? p.x + uint64_t(selected) * uint64_t(n_in) * 4ul : p.shared_expert_x, offset, n_in);
    }
    [[unroll]] for (int i = 0; i < kUnroll; ++i) stage_vec8(x[i], first + i * kWarps, n_expert_segments);
  }
  barrier();
}

// An expert's output: segments are added in the order of linear.comp.
float sum_segments(int selected, int row) {
  int n_segments = p.parts[0].n_segments, n_splits = p.parts[0].n_splits;
  precise float sum = 0;
  for (int split = 0; split < n_splits; ++split) {
    precise float split_sum = 0;
    for (int s = split * n_segments / n_splits; s < (split + 1) * n_segments / n_splits; ++s) {
      split_sum = split_sum + segment_values[(selected * n_segments + s) * kPanelRows + row];
    }
    sum = sum + split_sum;
  }
  return sum;
}

void moe_down(bool is_warm_up) {
  int panel = int(gl_WorkGroupID.x), n_rows = p.n_experts_used + (has_shared_expert() ? 1 : 0);
  int n_expert_segments = n_rows * p.parts[0].n_segments;
  int o = panel * kPanelRows + lane_id();
  bool writes = warp_id() == 0 && o < p.parts[0].n_out;
  // Load all small operands now: at the end each would cost a round trip to memory.
  float residual_value = 0, shared_expert_gate = 0;
  if (thread_id() < p.n_experts_used) {
    expert_ids[thread_id()] = is_warm_up ? 0 : CoherentInts(p.expert_ids).data[thread_id()];
    router_weights[thread_id()] = CoherentFloats(p.expert_weights).data[thread_id()];
  }
  if (writes && has_shared_expert()) shared_expert_gate = CoherentFloats(p.shared_expert_gate).data[0];
  if (writes && p.residual != 0ul) residual_value = CoherentFloats(p.residual).data[o];
  barrier();
  PrefetchedSegment prefetched[kPrefetchSegments];
  [[unroll]] for (int i = 0; i < kPrefetchSegments; ++i) {
    int expert_segment = warp_id() + i * kWarps;
    if (expert_segment < n_expert_segments) prefetched[i] = load_segment(expert_segment_at(expert_segment, panel));
  }
  quantize_rows(n_expert_segments);
  for (int first = warp_id(); first < (is_warm_up ? 1 : n_expert_segments); first += kPrefetchSegments * kWarps) {
    [[unroll]] for (int i = 0; i < kPrefetchSegments; ++i) {
      int expert_segment = first + i * kWarps;
      if (expert_segment >= n_expert_segments) continue;
      if (first != warp_id()) prefetched[i] = load_segment(expert_segment_at(expert_segment, panel));
      float values[M];
      multiply_segment(prefetched[i], expert_segment, 0ul, values);
      segment_values[expert_segment * kPanelRows + lane_id()] = values[0];
    }
  }
  barrier();
  for (int selected = warp_id(); selected < n_rows; selected += kWarps) {
    float sum = sum_segments(selected, lane_id());
    if (selected < p.n_experts_used && o < p.parts[0].n_out) sum = scale_and_bias(sum, 0, expert_ids[selected], o);
    expert_sums[selected * kPanelRows + lane_id()] = sum;
  }
  barrier();
  if (!writes) return;
  precise float total = 0;
  for (int u = 0; u < p.n_experts_used; ++u) total = fma(expert_sums[u * kPanelRows + lane_id()], router_weights[u], total);
  if (has_shared_expert()) {
    total = gated(kSigmoid, shared_expert_gate, expert_sums[p.n_experts_used * kPanelRows + lane_id()]) + total;
  }
  if (p.residual != 0ul) total = residual_value + total;
  if (!is_warm_up) CoherentFloats(p.outs[0]).data[o] = total;
}

void main() {
  [[dont_unroll]] for (int pass = 1 - kWarmUp; pass < 2; ++pass) {
    if (pass == 1) wait_producers(p.sync);
    moe_down(pass == 0);
  }
  signal_done(p.sync);
}
