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

bool has_last() { return p.last_x != 0ul; }

uint64_t unit_at(int unit, int panel, bool rehearses) {
  int n_segments = p.parts[0].n_segments, used = unit / n_segments, s = unit % n_segments;
  if (rehearses) return panel_at(p.parts[0], panel, 0);
  uint64_t weights = used < p.n_used ? panel_at(p.parts[0], panel, PassedInts(p.expert_ids).at[used])
                                     : panel_at(p.parts[1], panel, 0);
  return weights + uint64_t(s) * uint64_t(kSegmentBytes);
}

void round_rows(int n_units) {
  int n_segments = p.parts[0].n_segments, n_in = p.parts[0].n_in;
  for (int first = 0; first < n_units; first += kWarps) {
    int unit = first + warp_id(), used = min(unit / n_segments, p.n_used);
    int at = unit < n_units ? unit % n_segments * kSegmentElems + lane_id() * 8 : n_in + 8;
    uint64_t row = used < p.n_used ? p.x + uint64_t(used) * uint64_t(n_in) * 4ul : p.last_x;
    keep_eight(load_passed(row, at, n_in), unit, n_units);
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
  Loaded loaded[kAhead];
  [[unroll]] for (int i = 0; i < kAhead; ++i) {
    int unit = warp_id() + i * kWarps;
    if (unit < n_units) loaded[i] = load_segment(unit_at(unit, panel, rehearses));
  }
  round_rows(n_units);
  for (int first = warp_id(); first < (rehearses ? 1 : n_units); first += kAhead * kWarps) {
    [[unroll]] for (int i = 0; i < kAhead; ++i) {
      int unit = first + i * kWarps;
      if (unit >= n_units) continue;
      if (first != warp_id()) loaded[i] = load_segment(unit_at(unit, panel, rehearses));
      float values[M];
      multiply_segment(loaded[i], unit, values);
      values_of[unit * kPanelRows + lane_id()] = values[0];
    }
  }
  barrier();
  int o = panel * kPanelRows + lane_id();
  for (int used = warp_id(); used < n_rows; used += kWarps) {
    float sum = sum_of(used, lane_id());
    if (used < p.n_used && o < p.parts[0].n_out) sum = finished(sum, 0, rehearses ? 0 : PassedInts(p.expert_ids).at[used], o);
    sums_of[used * kPanelRows + lane_id()] = sum;
  }
  barrier();
  if (warp_id() > 0 || o >= p.parts[0].n_out) return;
  precise float all = 0;
  for (int u = 0; u < p.n_used; ++u) all = fma(sums_of[u * kPanelRows + lane_id()], PassedFloats(p.mix_weights).at[u], all);
  if (has_last()) all = gated(kSigmoid, PassedFloats(p.last_gate).at[0], sums_of[p.n_used * kPanelRows + lane_id()]) + all;
  if (p.added != 0ul) all = PassedFloats(p.added).at[o] + all;
  if (!rehearses) PassedFloats(p.outs[0]).at[o] = all;
}

void main() {
  [[dont_unroll]] for (int pass = 1 - kRehearses; pass < 2; ++pass) {
    if (pass == 1) wait_for_group(p.chain);
    mix(pass == 0);
  }
  count_workgroup(p.chain);
}
