// out[m, o] = sum_k x[m, k] * weight[o, k]: matrices times few or many rows of activations, one module per format.
// One thread per output row, 32 of them a panel; M rows of activations at once. Either the warps of a workgroup share a
// panel's segments (kSplit, decode) or each has a panel of its own (prompts). Sums: a segment's value is exact integers
// and then the fewest float operations; segments are added in order within a split, splits in order. So the result does
// not depend on M, kSplit or where x was rounded. Moves each weight once per M rows.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "panel.glsl"
#include FORMAT
#include "product.glsl"

layout(constant_id = 1) const int M = 1;        // rows of activations at once
layout(constant_id = 2) const int kSplit = 1;   // the warps of a panel share its segments
layout(constant_id = 10) const int kSplits = 8;  // Matrix::n_splits of all parts
#include "segments.glsl"
#include "input.glsl"

// Gate and up at once, where warps are left.
const int kHasWarps = 2 * kSplits <= kWarps ? 1 : 0, kHalves = 1 + kGated * kSplit * kHasWarps;
const int kPanelWarps = kSplit != 0 ? kSplits * kHalves : 1, kPanels = kWarps / kPanelWarps;  // of a workgroup
const int kUpAt = kHalves == 2 ? kSplits * M * 32 : M * kThreads;  // in partial, behind the gate
shared float partial[kSplit * (1 + kGated) * M * kThreads + 1];

const bool kAddsEarly = M == 1 && kSplit != 0;

int results[M];

Loaded loaded;  // the segment at hand

uint64_t segment_at(uint64_t weights, int s) { return weights + uint64_t(s) * uint64_t(kSegmentBytes); }

// With one row each segment makes way for the next as it is multiplied. More rows need the registers, and time enough to wait in.
const bool kMakesWay = M == 1;

// The panel's runs of segments, from `run` on, the only one where warps share; behind the last comes that at `after` (0: none).
// A second one beside it would cost more in workgroups at once than it wins. REQUIRES: the first is loaded.
void multiply_panel(uint64_t weights, int n_segments, int run, bool rehearses, uint64_t after, out float totals[M]) {
  int begin = run * n_segments / kSplits, end_run = kSplit != 0 ? run + 1 : kSplits;
  int last = rehearses ? begin : end_run * n_segments / kSplits - 1;
  [[unroll]] for (int m = 0; m < M; ++m) totals[m] = 0;
  for (; run < end_run; ++run) {
    float sums[M];
    [[unroll]] for (int m = 0; m < M; ++m) sums[m] = 0;
    int end = rehearses ? begin + 1 : (run + 1) * n_segments / kSplits;
    [[dont_unroll]] for (int s = run * n_segments / kSplits; s < end; ++s) {
      float values[M];
      uint64_t next = s < last ? segment_at(weights, s + 1) : after;
      multiply_segment(loaded, s, kMakesWay ? next : 0ul, values);
      if (!kMakesWay && next != 0ul) loaded = load_segment(next);
      [[unroll]] for (int m = 0; m < M; ++m) {
        precise float sum = sums[m] + values[m];
        sums[m] = sum;
      }
    }
    [[unroll]] for (int m = 0; m < M; ++m) {
      precise float total = totals[m] + sums[m];
      totals[m] = total;
    }
  }
}

// Which rows, and of which expert. The number of rows there are; none: nothing to do.
int find_rows(out int expert) {
  int first, n = find_tile(M, expert, first);
  [[unroll]] for (int m = 0; m < M && n > 0; ++m) {  // rows past the last repeat it
    int at = first + min(m, n - 1);
    results[m] = kExperts == 2 ? Ints(p.order).at[at] : at;
    x_rows[m] = kExperts != 0 && p.x_per_used == 0 ? results[m] / p.n_used : results[m];
  }
  return n;
}

// The products of this workgroup.
void multiply(bool rehearses) {
  if (kExperts == 1 && !rehearses) wait_for_group(p.chain);
  if (kRouteRoom > 1) choose_experts(p.route, 0);  // one row; whose experts nobody has looked for yet
  int local = warp_id() / kPanelWarps, run = kSplit != 0 ? warp_id() % kSplits : 0;
  int half_id = kHalves == 2 ? warp_id() / kSplits % 2 : 0;
  int part, block = find_part(kPanelRows * kPanels, part);
  int panel = block * kPanels + local, n_out = p.parts[part].n_out, expert;
  int n_rows = find_rows(expert);
  if (n_rows == 0) return;
  if (rehearses) expert = 0;
  bool is_inside = panel * kPanelRows < n_out;
  int safe_panel = is_inside ? panel : 0, of = kHalves == 2 ? half_id : part, n_segments = p.parts[0].n_segments;
  uint64_t weights = panel_at(p.parts[of], safe_panel, expert);
  // The first weights are on their way before the activations are looked at.
  bool begins = rehearses || kRehearses == 0;
  int begin = run * n_segments / kSplits;
  if (begins || kExperts == 1) loaded = load_segment(segment_at(weights, begin));
  if (begins && kRounds != 0) begin_input();
  if (kRouteRoom > 1 && gl_WorkGroupID.x == 0 && gl_WorkGroupID.y == 0) write_route(p.route, 0, !rehearses);
  if (kExperts != 1 && !rehearses) wait_for_group(p.chain);
  // One row: a thread has one output at most. What is added to it is asked for with the row and not behind its sums.
  float added = 0;
  int own = block * kPanels * kPanelRows + thread_id();
  if (kAddsEarly && thread_id() < kPanels * kPanelRows && own < n_out) added = residual(part, own, results[0]);
  if (kRounds != 0) make_input();
  float totals[M], gates[M];
  [[unroll]] for (int m = 0; m < M; ++m) totals[m] = 0;
  int n_passes = kGated != 0 && kHalves == 1 && !rehearses ? 2 : 1;
  [[dont_unroll]] for (int pass = 0; pass < n_passes; ++pass) {
    if (pass == 1) weights = panel_at(p.parts[1], safe_panel, expert);
    // Behind the gate's segments come the up's; behind a rehearsal's the first again, where pieces of it made way for others.
    uint64_t after = pass + 1 < n_passes ? segment_at(panel_at(p.parts[1], safe_panel, expert), begin)
                     : rehearses && ROUNDED_BLOCK == 0 ? segment_at(weights, begin) : 0ul;
    [[unroll]] for (int m = 0; m < M; ++m) gates[m] = totals[m];
    if (is_inside || kStages) multiply_panel(weights, n_segments, run, rehearses, after, totals);
    [[unroll]] for (int m = 0; m < M && kSplit != 0; ++m) {
      partial[pass * kUpAt + (warp_id() * M + m) * 32 + lane_id()] = totals[m];
    }
  }
  if (kSplit == 0) {
    int o = panel * kPanelRows + lane_id();
    [[unroll]] for (int m = 0; m < M; ++m) {
      if (o >= n_out || m >= n_rows) continue;
      write_out(part, expert, o, results[m], kGated != 0 ? gates[m] : totals[m], totals[m], residual(part, o, results[m]));
    }
    return;
  }
  barrier();
  for (int i = thread_id(); i < kPanels * M * kPanelRows; i += kThreads) {
    int row = i % kPanelRows, m = i / kPanelRows % M, which = i / (kPanelRows * M);
    int o = (block * kPanels + which) * kPanelRows + row;
    if (o >= n_out || m >= n_rows) continue;
    float sum = 0, up_sum = 0;
    [[unroll]] for (int w = 0; w < kSplits; ++w) {
      int at = ((which * kPanelWarps + w) * M + m) * 32 + row;
      precise float next = sum + partial[at];
      sum = next;
      if (kGated != 0) {
        precise float next_up = up_sum + partial[kUpAt + at];
        up_sum = next_up;
      }
    }
    if (!kAddsEarly) added = residual(part, o, results[m]);
    if (!rehearses) write_out(part, expert, o, results[m], sum, up_sum, added);
  }
}

void main() {
  [[dont_unroll]] for (int pass = 1 - kRehearses; pass < 2; ++pass) multiply(pass == 0);
  count_workgroup(p.chain);
}
