// Shared by the GEMM kernels on int8 cooperative matrices. A workgroup computes kTileRows rows of activations by kTileOutputs
// outputs, a warp 32 x 32 of them: 2 x 2 matrix tiles. Scales of a row or an output are loaded with stride 0 as a matrix with
// equal columns or rows, so that they match each accumulator element whatever layout the device uses.
// REQUIRES: subgroups of 32; the matrix shape 16 x 16 x kDepth.
layout(constant_id = kSpecGemmWarpRows) const int kWarpRows = 4;  // warps along the rows of activations; 8 / kWarpRows along the outputs
layout(constant_id = kSpecGemmDepth) const int kDepth = 32;  // K of one matrix instruction: 16 or 32

const int kTile = 16;
const int kTileRows = 32 * kWarpRows, kTileOutputs = 32 * (kWarps / kWarpRows);
const int kResultStride = kTileOutputs / 4 + kWarpRows / 4, kResultQuads = kTileRows * kResultStride;  // in uvec4 (16 bytes)

#define MatA coopmat<int8_t, gl_ScopeSubgroup, kTile, kDepth, gl_MatrixUseA>
#define MatB coopmat<int8_t, gl_ScopeSubgroup, kDepth, kTile, gl_MatrixUseB>
#define AccI32 coopmat<int, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseAccumulator>
#define AccF32 coopmat<float, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseAccumulator>
const int kRowMajor = gl_CooperativeMatrixLayoutRowMajor, kColumnMajor = gl_CooperativeMatrixLayoutColumnMajor;

shared int tile_x_rows[kTileRows];  // row of x
shared int tile_result_rows[kTileRows];

int part, first_panel, expert;

// Panel and part of the workgroup's weight row r. With kGatedAct the gate's rows come before the up's.
int panel_of(int r, out int weight_part) {
  int panel = r / kPanelRows;
  weight_part = part;
  if (kGatedAct != 0 && panel >= kTileOutputs / kPanelRows / 2) {
    panel -= kTileOutputs / kPanelRows / 2;
    weight_part = 1;
  }
  panel += first_panel;
  return panel * kPanelRows < p.parts[weight_part].n_out ? panel : 0;  // past the end: computes panel 0, writes nothing
}
uint64_t segment_of(int r, int s) {
  int weight_part, panel = panel_of(r, weight_part);
  return panel_at(p.parts[weight_part], panel, expert) + uint64_t(s) * uint64_t(kSegmentBytes);
}

int warp_row() { return warp_id() % kWarpRows * 32; }
// Offset of the warp's tile n in the workgroup's outputs. One warp has gate and up of the same outputs.
int output_offset(int n) {
  int w = warp_id() / kWarpRows;
  return kGatedAct != 0 ? n * (kTileOutputs / 2) + w * kTile : w * 32 + n * kTile;
}

void find_rows_of_tile(int n_rows, int first) {
  for (int m = thread_id(); m < kTileRows; m += kThreads) {
    int row = first + min(m, n_rows - 1);  // rows past the end repeat the last
    tile_result_rows[m] = kExpertMode != kDense ? Ints(p.sorted_pairs).data[row] : row;
    tile_x_rows[m] = kExpertMode != kDense && p.x_per_expert == 0 ? tile_result_rows[m] / p.n_experts_used : tile_result_rows[m];
  }
}

// Selects the workgroup's tile; returns its number of rows, 0: nothing to do.
int select_tile_and_rows() {
  const int kResultOutputs = kGatedAct != 0 ? kTileOutputs / 2 : kTileOutputs;
  int output_tile = select_part(kResultOutputs, part), first, n_rows = select_tile(kTileRows, expert, first);
  first_panel = output_tile * kResultOutputs / kPanelRows;
  if (n_rows > 0) find_rows_of_tile(n_rows, first);
  return n_rows;
}

// Adds the partial sums of a K split to the totals.
void end_split(inout AccF32 totals[2][2], inout AccF32 splits[2][2]) {
  [[unroll]] for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < totals[0][0].length(); ++i) {
      precise float total = totals[t / 2][t % 2][i] + splits[t / 2][t % 2][i];
      totals[t / 2][t % 2][i] = total;
      splits[t / 2][t % 2][i] = 0;
    }
  }
}
