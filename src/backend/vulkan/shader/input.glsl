// How a workgroup makes the one row of a step ready for its products, where others would have needed a dispatch: normed as
// a whole; or by heads, and behind a gate; rounded to 8 bits, or as it is for weights in floats.
layout(constant_id = 9) const int kInput = 0;  // as it is, normed, or heads normed and gated
layout(constant_id = 21) const int kGateAct = 0;
const int kAsIs = 0;
const int kNormed = 1;
const int kGatedHeads = 2;
const int kKept = 2;  // segments of up to 4096 inputs that each of 8 warps has

// Heads of p.head_dim numbers each normed alone, and gated. REQUIRES: every thread of the workgroup calls.
Eight gated_heads(Eight x, Eight weight, Eight gate) {
  float factor = rms_factor(lanes_sum(squares(x, 0), p.head_dim / 8), p.head_dim, p.norm_eps);
  precise vec4 a = x.a * factor;
  precise vec4 b = x.b * factor;
  a = a * weight.a;
  b = b * weight.b;
  [[unroll]] for (int i = 0; i < 4; ++i) {
    a[i] = gated(kGateAct, gate.a[i], a[i]);
    b[i] = gated(kGateAct, gate.b[i], b[i]);
  }
  return Eight(a, b);
}

// Few enough numbers a thread to keep them, and the norm's weights.
const bool kKeepsRow = kQuads <= 256 && kInput != kGatedHeads;
// Where weights of the matrix leave registers for them, those of the norm are on their way as early.
const bool kWeightsAhead = ROUNDED_BLOCK == 0 || GROUP_BYTES <= 24;
Eight norm_weights[kKept];
int place_of(int i, int n_in) {
  int s = i * kWarps + warp_id();
  return s < p.parts[0].n_segments ? s * kSegmentElems + lane_id() * 8 : n_in + 8;
}

Eight norm_weight(int i, int n_in) {
  return p.norm_weight != 0ul ? load_eight(p.norm_weight, place_of(i, n_in), n_in) : Eight(vec4(1), vec4(1));
}
// What does not depend on the row.
void begin_input() {
  if (kInput == kGatedHeads) {  // heads are a part of 256 numbers: the same weights in every segment
    norm_weights[0] = Eight(vec4(1), vec4(1));
    if (p.norm_weight != 0ul) norm_weights[0] = load_eight(p.norm_weight, lane_id() * 8 % p.head_dim, p.head_dim);
  }
  if (!kKeepsRow || kInput != kNormed || !kWeightsAhead) return;
  [[unroll]] for (int i = 0; i < kKept; ++i) norm_weights[i] = norm_weight(i, p.parts[0].n_in);
}

void make_input() {
  int n_in = p.parts[0].n_in, n_segments = p.parts[0].n_segments;
  uint64_t row = p.x + uint64_t(x_rows[0]) * uint64_t(n_in) * 4ul;
  if (kKeepsRow) {
    Eight x[kKept];
    float sum = 0;
    [[unroll]] for (int i = 0; i < kKept; ++i) x[i] = load_passed(row, place_of(i, n_in), n_in);
    float factor = 1;
    if (kInput == kNormed) {
      [[unroll]] for (int i = 0; i < kKept; ++i) sum = squares(x[i], sum);
      factor = rms_factor(block_sum(sum), n_in, p.norm_eps);
    }
    [[unroll]] for (int i = 0; i < kKept; ++i) {
      if (kInput == kNormed) {
        precise vec4 a = x[i].a * factor;
        precise vec4 b = x[i].b * factor;
        if (p.norm_weight != 0ul) {
          if (!kWeightsAhead) norm_weights[i] = norm_weight(i, n_in);
          a = a * norm_weights[i].a;
          b = b * norm_weights[i].b;
        }
        x[i] = Eight(a, b);
      }
      if (i * kWarps < n_segments) keep_eight(x[i], i * kWarps + warp_id(), n_segments);
    }
  } else {
    const int kAtOnce = kInput == kGatedHeads ? 2 : 4;  // segments of a warp on their way
    float factor = 1;
    if (kInput == kNormed) factor = rms_factor(row_squares(row, n_in), n_in, p.norm_eps);
    for (int first = warp_id(); first - warp_id() < n_segments; first += kAtOnce * kWarps) {
      Eight x[kAtOnce], gates[kAtOnce];
      [[unroll]] for (int i = 0; i < kAtOnce; ++i) {
        int s = first + i * kWarps, at = s < n_segments ? s * kSegmentElems + lane_id() * 8 : n_in + 8;
        x[i] = load_passed(row, at, n_in);
        if (kInput == kGatedHeads) gates[i] = load_passed(p.gate, at, n_in);
      }
      [[unroll]] for (int i = 0; i < kAtOnce; ++i) {
        int s = first + i * kWarps, at = s < n_segments ? s * kSegmentElems + lane_id() * 8 : n_in + 8;
        if (kInput == kGatedHeads) x[i] = gated_heads(x[i], norm_weights[0], gates[i]);
        if (kInput == kNormed) x[i] = normed(x[i], factor, p.norm_weight, at, n_in);
        keep_eight(x[i], s, n_segments);
      }
    }
  }
  barrier();
}
