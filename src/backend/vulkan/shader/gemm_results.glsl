// The workgroup's results, by way of the stage.

// Four outputs from o on.
void write_four(int o, int result, vec4 sums, vec4 ups) {
  int n_out = p.parts[part].n_out;
  if ((n_out & 3) != 0 || o >= n_out) {
    for (int c = 0; c < 4 && o + c < n_out; ++c) {
      write_out(part, expert, o + c, result, sums[c], ups[c], residual(part, o + c, result));
    }
    return;
  }
  vec4 values;
  [[unroll]] for (int c = 0; c < 4; ++c) {
    precise float value = finished(sums[c], part, expert, o + c);
    if (kGated != 0) value = gated(p.act, value, finished(ups[c], 1, expert, o + c));
    values[c] = value;
  }
  uint64_t at = place_of_result(part, o, result);
  if (p.added != 0ul) {
    precise vec4 sum = FloatQuads(p.added + at).at[0] + values;
    values = sum;
  }
  FloatQuads(p.outs[part] + at).at[0] = values;
}

// REQUIRES: nobody needs the stage any more.
void write_results(Floats16 totals[2][2], int n_rows) {
  [[unroll]] for (int t = 0; t < 4; ++t) {
    int at = (warp_row() + t / 2 * kTile) * kResultStride + output_at(t % 2) / 4;
    coopMatStore(totals[t / 2][t % 2], stage, at, kResultStride, kRowMajor);
  }
  barrier();
  const int kFours = kTileOutputs / (kGated != 0 ? 8 : 4);
  [[unroll]] for (int i = 0; i < kTileRows * kFours / kThreads; ++i) {
    int at = i * kThreads + thread_id(), row = at / kFours, four = at % kFours, from = row * kResultStride + four;
    if (row >= n_rows) break;
    vec4 ups = kGated != 0 ? uintBitsToFloat(stage[from + kFours]) : vec4(0);
    write_four(first_panel * kPanelRows + 4 * four, result_of[row], uintBitsToFloat(stage[from]), ups);
  }
}
