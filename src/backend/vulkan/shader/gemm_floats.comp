// out[m, o] = sum_k x[m, k] * weight[o, k] for float weights and few rows of activations (columns), as a router has. A workgroup has
// a panel and kColumns columns; its warps have a K split of the panel each, and a segment of the columns in shared memory, so
// that nothing but the weights is read while it multiplies. The first weights are in flight before the wait. Sums are made in
// the order of linear.comp: results are bit-identical.
// REQUIRES: a float format. REQUIRES: kGatedAct and kExpertMode are 0.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "panel.glsl"
#include FORMAT
#include "matmul.glsl"

layout(constant_id = kSpecLinearKSplits) const int kKSplits = 8;  // Matrix::n_splits of all parts
layout(constant_id = kSpecMatmulLoadsInFlight) const int kLoadsInFlight = 8;  // 16-byte loads of weights per thread

const int kColumns = kGemmFloatsColumns, kPanels = kWarps / kKSplits;  // per workgroup
const int kPieces = kSegmentElems / PIECE_ELEMS;  // of 16 bytes, per segment
const int kRowVec4s = kSegmentElems / 4;

shared vec4 x_tile[kWarps * kColumns * kRowVec4s];
shared float partial[kWarps * kColumns * 32];

uvec4 pieces[kLoadsInFlight];
Vec8 x_prefetch[kColumns];

void load_x(int s, int first, int n_rows) {
  int n_in = p.parts[0].n_in;
  [[unroll]] for (int m = 0; m < kColumns; ++m) {  // columns past the end repeat the last
    uint64_t row = p.x + uint64_t(first + min(m, n_rows - 1)) * uint64_t(n_in) * 4ul;
    x_prefetch[m] = load_vec8_coherent(row, s * kSegmentElems + lane_id() * 8, n_in);
  }
}
void store_x() {
  [[unroll]] for (int m = 0; m < kColumns; ++m) {
    int to = (warp_id() * kColumns + m) * kRowVec4s + 2 * lane_id();
    x_tile[to] = x_prefetch[m].a;
    x_tile[to + 1] = x_prefetch[m].b;
  }
}

// Multiplies the segment whose first pieces are in registers; those of the segment at `next` (0: none) are loaded at the end.
void multiply_segment(uint64_t segment, uint64_t next, inout float sums[kColumns]) {
  float values[kColumns];
  [[unroll]] for (int m = 0; m < kColumns; ++m) values[m] = 0;
  int tile = warp_id() * kColumns * kRowVec4s;
  [[dont_unroll]] for (int j = 0; j < kPieces; j += kLoadsInFlight) {
    uint64_t from = j + kLoadsInFlight < kPieces ? segment + uint64_t(16 * kPanelRows * (j + kLoadsInFlight)) : next;
    [[unroll]] for (int i = 0; i < kLoadsInFlight; ++i) {
      uvec4 piece = pieces[i];
      if (from != 0ul) pieces[i] = load_16(from, 16 * i, lane_id());
      [[unroll]] for (int k = 0; k < PIECE_ELEMS; k += 4) {
        [[unroll]] for (int m = 0; m < kColumns; ++m) {
          vec4 x = x_tile[tile + m * kRowVec4s + ((j + i) * PIECE_ELEMS + k) / 4];
          precise float value = values[m];
          [[unroll]] for (int c = 0; c < 4; ++c) value = fma(element(piece, k + c), x[c], value);
          values[m] = value;
        }
      }
    }
  }
  [[unroll]] for (int m = 0; m < kColumns; ++m) {
    precise float sum = sums[m] + values[m];
    sums[m] = sum;
  }
}

void multiply() {
  int split = warp_id() % kKSplits, n_segments = p.parts[0].n_segments;
  int begin = split * n_segments / kKSplits, end = (split + 1) * n_segments / kKSplits;
  int part, output_tile = select_part(kPanelRows * kPanels, part), n_out = p.parts[part].n_out;
  int panel = output_tile * kPanels + warp_id() / kKSplits;
  int first = int(gl_WorkGroupID.y) * kColumns, n_rows = min(kColumns, rows_of(p.n_rows) * p.vectors_per_row - first);
  if (n_rows <= 0) return;
  if (panel * kPanelRows >= n_out) panel = 0;  // past the end: computes panel 0, writes nothing
  uint64_t weights = panel_at(p.parts[part], panel, 0) + uint64_t(begin) * uint64_t(kSegmentBytes);
  [[unroll]] for (int i = 0; i < kLoadsInFlight; ++i) pieces[i] = load_16(weights, 16 * i, lane_id());
  wait_producers(p.sync);
  load_x(begin, first, n_rows);
  float sums[kColumns];
  [[unroll]] for (int m = 0; m < kColumns; ++m) sums[m] = 0;
  int n_rounds = (n_segments + kKSplits - 1) / kKSplits;  // splits differ by one segment
  [[dont_unroll]] for (int i = 0; i < n_rounds; ++i, weights += uint64_t(kSegmentBytes)) {
    barrier();  // the segment before has been read
    store_x();
    barrier();
    bool has_next = begin + i + 1 < end;
    if (has_next) load_x(begin + i + 1, first, n_rows);
    if (begin + i < end) multiply_segment(weights, has_next ? weights + uint64_t(kSegmentBytes) : 0ul, sums);
  }
  [[unroll]] for (int m = 0; m < kColumns; ++m) partial[(warp_id() * kColumns + m) * 32 + lane_id()] = sums[m];
  barrier();
  for (int i = thread_id(); i < kPanels * kColumns * kPanelRows; i += kThreads) {
    int row = i % kPanelRows, m = i / kPanelRows % kColumns, local_panel = i / (kPanelRows * kColumns);
    int o = (output_tile * kPanels + local_panel) * kPanelRows + row;
    if (o >= n_out || m >= n_rows) continue;
    precise float sum = 0;
    [[unroll]] for (int w = 0; w < kKSplits; ++w) sum = sum + partial[((local_panel * kKSplits + w) * kColumns + m) * 32 + row];
    write_out(part, 0, o, first + m, sum, 0.0, residual(part, o, first + m));
  }
}

void main() {
  multiply();
  signal_done(p.sync);
}
