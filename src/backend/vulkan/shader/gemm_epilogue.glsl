// GEMM epilogue: scale, bias, activation, residual; stores through shared memory.

#include "write_vec4.glsl"

// REQUIRES: the stage is no longer needed.
void write_results(AccF32 totals[2][2], int n_rows) {
  [[unroll]] for (int t = 0; t < 4; ++t) {
    int offset = (warp_row() + t / 2 * kTile) * kResultStride + output_offset(t % 2) / 4;
    coopMatStore(totals[t / 2][t % 2], stage, offset, kResultStride, kRowMajor);
  }
  barrier();
  const int kVec4s = kTileOutputs / (kGatedAct != 0 ? 8 : 4);
  [[unroll]] for (int i = 0; i < kTileRows * kVec4s / kThreads; ++i) {
    int item = i * kThreads + thread_id(), row = item / kVec4s, vec4_idx = item % kVec4s, from = row * kResultStride + vec4_idx;
    if (row >= n_rows) break;
    vec4 ups = kGatedAct != 0 ? uintBitsToFloat(stage[from + kVec4s]) : vec4(0);
    write_vec4(part, expert, first_panel * kPanelRows + 4 * vec4_idx, tile_result_rows[row], uintBitsToFloat(stage[from]), ups);
  }
}
