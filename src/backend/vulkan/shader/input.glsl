// How a workgroup makes the one row of a step ready for its products, where others would have needed a dispatch: normed as
// a whole; or by heads, and behind a gate; rounded to 8 bits, or as it is for weights in floats.
const int kKept = 2;  // segments of up to 4096 inputs that each of 8 warps has

// Heads of p.head_dim numbers each normed alone, and gated. REQUIRES: every thread of the workgroup calls.
Eight gated_heads(Eight x, int at, int n_in) {
  float factor = rms_factor(lanes_sum(squares(x, 0), p.head_dim / 8), p.head_dim, p.norm_eps);
  Eight y = normed(x, factor, p.norm_weight, at % p.head_dim, p.head_dim);
  Eight gate = load_eight(p.gate, at, n_in);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    y.a[i] = gated(p.gate_act, gate.a[i], y.a[i]);
    y.b[i] = gated(p.gate_act, gate.b[i], y.b[i]);
  }
  return y;
}

void make_input() {
  int n_in = p.parts[0].n_in, n_segments = p.parts[0].n_segments;
  uint64_t row = p.x + uint64_t(x_rows[0]) * uint64_t(n_in) * 4ul;
  if (kQuads <= 256 && p.head_dim == 0) {  // few enough numbers a thread to keep them, and the norm's weights
    Eight x[kKept], weight[kKept];
    float sum = 0;
    [[unroll]] for (int i = 0; i < kKept; ++i) {
      int s = i * kWarps + warp_id(), at = s < n_segments ? s * kSegmentElems + lane_id() * 8 : n_in + 8;
      x[i] = load_eight(row, at, n_in);
      weight[i] = Eight(vec4(1), vec4(1));
      if (p.norm_weight != 0ul) weight[i] = load_eight(p.norm_weight, at, n_in);
    }
    float factor = 1;
    if (p.is_normed != 0) {
      [[unroll]] for (int i = 0; i < kKept; ++i) sum = squares(x[i], sum);
      factor = rms_factor(block_sum(sum), n_in, p.norm_eps);
    }
    [[unroll]] for (int i = 0; i < kKept; ++i) {
      if (p.is_normed != 0) {
        precise vec4 a = x[i].a * factor;
        precise vec4 b = x[i].b * factor;
        if (p.norm_weight != 0ul) {
          a = a * weight[i].a;
          b = b * weight[i].b;
        }
        x[i] = Eight(a, b);
      }
      if (i * kWarps < n_segments) keep_eight(x[i], i * kWarps + warp_id(), n_segments);
    }
  } else {
    float factor = 1;
    if (p.is_normed != 0) factor = rms_factor(row_squares(row, n_in), n_in, p.norm_eps);
    for (int first = 0; first < n_segments; first += kWarps) {
      int s = first + warp_id(), at = s < n_segments ? s * kSegmentElems + lane_id() * 8 : n_in + 8;
      Eight x = load_eight(row, at, n_in);
      if (p.head_dim != 0) x = gated_heads(x, at, n_in);
      if (p.is_normed != 0) x = normed(x, factor, p.norm_weight, at, n_in);
      keep_eight(x, s, n_segments);
    }
  }
  barrier();
}
