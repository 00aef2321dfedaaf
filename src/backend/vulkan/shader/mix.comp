// What a token's experts give, weighed and added up, with the shared expert's part behind its gate and a residual: all last
// products of a layer of one row. out[o] = added + sum_u weight_u down_u[o] x_u + sigmoid(gate) shared[o] last_x. A workgroup
// has a panel of 32 outputs; the segments of all experts are divided among its warps, which load what they have before they
// need it. Every sum is made as linear.comp, combine.comp and gate.comp make it. REQUIRES: a rounded format.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "panel.glsl"
#include FORMAT
#include "product.glsl"

const int M = 1;
layout(constant_id = 2) const int kUnits = 32;  // segments of all experts there is room for
#include "segments.glsl"

const int kMaxMixed = 32;
layout(constant_id = 8) const int kAhead = 3;  // segments of a warp under way at once

shared float values_of[kUnits * kPanelRows];       // of each segment
shared float sums_of[(kMaxMixed + 1) * kPanelRows];  // of each expert
shared int ids_of[kMaxMixed];                        // the experts, and how much each counts
shared float shares_of[kMaxMixed];

bool has_last() { return p.last_x != 0ul; }

uint64_t unit_at(int unit, int panel) {
  int n_segments = p.parts[0].n_segments, used = unit / n_segments, s = unit % n_segments;
  uint64_t weights = used < p.n_used ? panel_at(p.parts[0], panel, ids_of[used]) : panel_at(p.parts[1], panel, 0);
  return weights + uint64_t(s) * uint64_t(kSegmentBytes);
}

void round_rows(int n_units) {
  const int kAtOnce = 4;  // on their way
  int n_segments = p.parts[0].n_segments, n_in = p.parts[0].n_in;
  for (int first = warp_id(); first - warp_id() < n_units; first += kAtOnce * kWarps) {
    Eight x[kAtOnce];
    [[unroll]] for (int i = 0; i < kAtOnce; ++i) {
      int unit = first + i * kWarps, used = min(unit / n_segments, p.n_used);
      int at = unit < n_units ? unit % n_segments * kSegmentElems + lane_id() * 8 : n_in + 8;
      x[i] = load_passed(used < p.n_used ? p.x + uint64_t(used) * uint64_t(n_in) * 4ul : p.last_x, at, n_in);
    }
    [[unroll]] for (int i = 0; i < kAtOnce; ++i) keep_eight(x[i], first + i * kWarps, n_units);
  }
  barrier();
}

// An expert's result, its segments added as everywhere.
float sum_of(int used, int row) {
  int n_segments = p.parts[0].n_segments, n_splits = p.parts[0].n_splits;
  precise float sum = 0;
  for (int split = 0; split < n_splits; ++split) {
    precise float of_split = 0;
    for (int s = split * n_segments / n_splits; s < (split + 1) * n_segments / n_splits; ++s) {
      of_split = of_split + values_of[(used * n_segments + s) * kPanelRows + row];
    }
    sum = sum + of_split;
  }
  return sum;
}

void mix(bool rehearses) {
  int panel = int(gl_WorkGroupID.x), n_rows = p.n_used + (has_last() ? 1 : 0), n_units = n_rows * p.parts[0].n_segments;
  int o = panel * kPanelRows + lane_id();
  bool writes = warp_id() == 0 && o < p.parts[0].n_out;
  // Everything small that others wrote is asked for at once: at the end each would be a way to memory and back.
  float added = 0, last_gate = 0;
  if (thread_id() < p.n_used) {
    ids_of[thread_id()] = rehearses ? 0 : PassedInts(p.expert_ids).at[thread_id()];
    shares_of[thread_id()] = PassedFloats(p.mix_weights).at[thread_id()];
  }
  if (writes && has_last()) last_gate = PassedFloats(p.last_gate).at[0];
  if (writes && p.added != 0ul) added = PassedFloats(p.added).at[o];
  barrier();
  Loaded loaded[kAhead];
  [[unroll]] for (int i = 0; i < kAhead; ++i) {
    int unit = warp_id() + i * kWarps;
    if (unit < n_units) loaded[i] = load_segment(unit_at(unit, panel));
  }
  round_rows(n_units);
  for (int first = warp_id(); first < (rehearses ? 1 : n_units); first += kAhead * kWarps) {
    [[unroll]] for (int i = 0; i < kAhead; ++i) {
      int unit = first + i * kWarps;
      if (unit >= n_units) continue;
      if (first != warp_id()) loaded[i] = load_segment(unit_at(unit, panel));
      float values[M];
      multiply_segment(loaded[i], unit, 0ul, values);
      values_of[unit * kPanelRows + lane_id()] = values[0];
    }
  }
  barrier();
  for (int used = warp_id(); used < n_rows; used += kWarps) {
    float sum = sum_of(used, lane_id());
    if (used < p.n_used && o < p.parts[0].n_out) sum = finished(sum, 0, ids_of[used], o);
    sums_of[used * kPanelRows + lane_id()] = sum;
  }
  barrier();
  if (!writes) return;
  precise float all = 0;
  for (int u = 0; u < p.n_used; ++u) all = fma(sums_of[u * kPanelRows + lane_id()], shares_of[u], all);
  if (has_last()) all = gated(kSigmoid, last_gate, sums_of[p.n_used * kPanelRows + lane_id()]) + all;
  if (p.added != 0ul) all = added + all;
  if (!rehearses) PassedFloats(p.outs[0]).at[o] = all;
}

void main() {
  [[dont_unroll]] for (int pass = 1 - kRehearses; pass < 2; ++pass) {
    if (pass == 1) wait_for_group(p.chain);
    mix(pass == 0);
  }
  count_workgroup(p.chain);
}
