// A warp's results of tile row m, through its own part of the stage.
void write_results(Floats16 totals[2][2], int n_rows) {
  int mine = warp_id() * 128;  // sixteens of bytes: two tiles
  [[unroll]] for (int m = 0; m < 2; ++m) {
    coopMatStore(totals[m][0], stage, mine, 4, kRowMajor);
    coopMatStore(totals[m][1], stage, mine + 64, 4, kRowMajor);
    barrier();
    for (int i = lane_id(); i < 512; i += 32) {
      int n = i / 256, row = warp_row() + m * kTile + i % 256 / 16, column = i % 16;
      if (row >= n_rows || (kGated != 0 && n == 1)) continue;
      int at = mine + i % 256 / 4;
      float value = uintBitsToFloat(stage[at + 64 * n][column % 4]), up = 0;
      if (kGated != 0) up = uintBitsToFloat(stage[at + 64][column % 4]);
      int o = first_panel * kPanelRows + output_at(n) + column;
      if (o < p.parts[part].n_out) write_out(part, expert, o, result_of[row], value, up);
    }
    barrier();
  }
}
