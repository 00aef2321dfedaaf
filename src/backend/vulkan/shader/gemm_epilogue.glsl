// GEMM epilogue: scale, bias, activation, residual; stores through shared memory.

// Outputs o .. o + 3 of one row.
void write_vec4(int o, int result, vec4 sums, vec4 ups) {
  int n_out = p.parts[part].n_out;
  if ((n_out & 3) != 0 || o >= n_out) {
    for (int c = 0; c < 4 && o + c < n_out; ++c) {
      write_out(part, expert, o + c, result, sums[c], ups[c], residual(part, o + c, result));
    }
    return;
  }
  vec4 values;
  [[unroll]] for (int c = 0; c < 4; ++c) {
    precise float value = scale_and_bias(sums[c], part, expert, o + c);
    if (kGatedAct != 0) value = gated(p.act, value, scale_and_bias(ups[c], 1, expert, o + c));
    values[c] = value;
  }
  uint64_t offset = result_offset(part, o, result);
  if (p.residual != 0ul) {
    precise vec4 sum = FloatQuads(p.residual + offset).data[0] + values;
    values = sum;
  }
  FloatQuads(p.outs[part] + offset).data[0] = values;
}

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
    write_vec4(first_panel * kPanelRows + 4 * vec4_idx, tile_result_rows[row], uintBitsToFloat(stage[from]), ups);
  }
}
