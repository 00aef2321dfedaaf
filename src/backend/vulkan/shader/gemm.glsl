// What kernels on cooperative matrices of signed bytes have in common: a workgroup has kTileRows rows of activations and
// kTileOutputs outputs, a warp 32 x 32 of them: two by two tiles. What belongs to a row or an output alone (scales) is loaded
// as a matrix whose rows or columns are all alike, so that it meets each sum whatever way the device lays its matrices out.
// REQUIRES: subgroups of 32; the matrix shape 16 x 16 x kDepth.
layout(constant_id = 1) const int kWarpRows = 4;  // warps along the rows of activations; 8 / kWarpRows along outputs
layout(constant_id = 2) const int kDepth = 32;    // inputs of one matrix product: 16 or 32

const int kTile = 16;
const int kTileRows = 32 * kWarpRows, kTileOutputs = 32 * (kWarps / kWarpRows);
const int kResultStride = kTileOutputs / 4 + kWarpRows / 4, kResultRoom = kTileRows * kResultStride;  // sixteens of bytes

#define Left coopmat<int8_t, gl_ScopeSubgroup, kTile, kDepth, gl_MatrixUseA>
#define Right coopmat<int8_t, gl_ScopeSubgroup, kDepth, kTile, gl_MatrixUseB>
#define Ints16 coopmat<int, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseAccumulator>
#define Floats16 coopmat<float, gl_ScopeSubgroup, kTile, kTile, gl_MatrixUseAccumulator>
const int kRowMajor = gl_CooperativeMatrixLayoutRowMajor, kColumnMajor = gl_CooperativeMatrixLayoutColumnMajor;

shared int row_of[kTileRows];  // rows of x
shared int result_of[kTileRows];

int part, first_panel, expert;

// The panel of the workgroup's weight row r, and its part: gate rows come before up rows where both are multiplied.
int panel_of(int r, out int which) {
  int panel = r / kPanelRows;
  which = part;
  if (kGated != 0 && panel >= kTileOutputs / kPanelRows / 2) {
    panel -= kTileOutputs / kPanelRows / 2;
    which = 1;
  }
  panel += first_panel;
  return panel * kPanelRows < p.parts[which].n_out ? panel : 0;  // the first is computed and not written
}
uint64_t segment_of(int r, int s) {
  int which, panel = panel_of(r, which);
  return panel_at(p.parts[which], panel, expert) + uint64_t(s) * uint64_t(kSegmentBytes);
}

int warp_row() { return warp_id() % kWarpRows * 32; }
// Where tile n of the warp's outputs begins in the workgroup's. Gate and up of the same outputs are one warp's.
int output_at(int n) {
  int w = warp_id() / kWarpRows;
  return kGated != 0 ? n * (kTileOutputs / 2) + w * kTile : w * 32 + n * kTile;
}

void find_rows_of_tile(int n_rows, int first) {
  for (int m = thread_id(); m < kTileRows; m += kThreads) {
    int at = first + min(m, n_rows - 1);  // rows past the last repeat it
    result_of[m] = kExperts != 0 ? Ints(p.order).at[at] : at;
    row_of[m] = kExperts != 0 && p.x_per_used == 0 ? result_of[m] / p.n_used : result_of[m];
  }
}

// What the workgroup has to do: the number of its rows; 0: nothing.
int find_work() {
  const int kOutputsHere = kGated != 0 ? kTileOutputs / 2 : kTileOutputs;
  int block = find_part(kOutputsHere, part), first, n_rows = find_tile(kTileRows, expert, first);
  first_panel = block * kOutputsHere / kPanelRows;
  if (n_rows > 0) find_rows_of_tile(n_rows, first);
  return n_rows;
}

// Sums of a run of segments join those of the runs before.
void end_split(inout Floats16 totals[2][2], inout Floats16 splits[2][2]) {
  [[unroll]] for (int t = 0; t < 4; ++t) {
    for (int i = 0; i < totals[0][0].length(); ++i) {
      precise float total = totals[t / 2][t % 2][i] + splits[t / 2][t % 2][i];
      totals[t / 2][t % 2][i] = total;
      splits[t / 2][t % 2][i] = 0;
    }
  }
}
