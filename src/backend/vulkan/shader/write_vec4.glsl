// Epilogue of outputs o .. o + 3 of one row: scale, bias, activation, residual.
void write_vec4(int part, int expert, int o, int result, vec4 sums, vec4 ups) {
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
    precise vec4 sum = CoherentQuads(p.residual + offset).data[0] + values;
    values = sum;
  }
  CoherentQuads(p.outs[part] + offset).data[0] = values;
}
