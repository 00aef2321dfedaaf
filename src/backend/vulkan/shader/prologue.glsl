// Fused prologue of a decode matmul: each workgroup prepares the single input row itself, which saves a dispatch: none, norm,
// or gated norm per head; then quantized to 8 bits, or kept as floats for float weights.
layout(constant_id = kSpecMatmulInputKind) const int kInputKind = 0;  // kPlainInput, kNormInput or kGatedNormInput
layout(constant_id = kSpecMatmulGateAct) const int kGateAct = 0;
const int kRowVec8s = 2;  // per thread: rows of up to 4096 inputs over 8 warps

// Norms each head of p.head_dim elements and applies the gate. REQUIRES: every thread of the workgroup calls.
Vec8 gated_norm(Vec8 x, int offset, int n_in) {
  float factor = rms_factor(clustered_sum(sum_squares(x, 0), p.head_dim / 8), p.head_dim, p.norm_eps);
  Vec8 y = apply_norm(x, factor, p.norm_weight, offset % p.head_dim, p.head_dim);
  Vec8 gate = load_vec8_coherent(p.gate, offset, n_in);
  [[unroll]] for (int i = 0; i < 4; ++i) {
    y.a[i] = gated(kGateAct, gate.a[i], y.a[i]);
    y.b[i] = gated(kGateAct, gate.b[i], y.b[i]);
  }
  return y;
}

// The row fits registers.
const bool kRowInRegisters = kRowQuads <= 256 && kInputKind != kGatedNormInput;
// Prefetch the norm's weights where the matrix weights leave enough registers.
const bool kPrefetchesNormWeights = Q8_BLOCK == 0 || GROUP_BYTES <= 24;
Vec8 norm_weights[kRowVec8s];
int vec8_offset(int i, int n_in) {
  int s = i * kWarps + warp_id();
  return s < p.parts[0].n_segments ? s * kSegmentElems + lane_id() * 8 : n_in + 8;
}

Vec8 norm_weight(int i, int n_in) {
  return p.norm_weight != 0ul ? load_vec8(p.norm_weight, vec8_offset(i, n_in), n_in) : Vec8(vec4(1), vec4(1));
}
// Loads that do not depend on the row.
void prefetch_prologue() {
  if (!kRowInRegisters || kInputKind != kNormInput || !kPrefetchesNormWeights) return;
  [[unroll]] for (int i = 0; i < kRowVec8s; ++i) norm_weights[i] = norm_weight(i, p.parts[0].n_in);
}

void run_prologue() {
  int n_in = p.parts[0].n_in, n_segments = p.parts[0].n_segments;
  uint64_t row = p.x + uint64_t(x_rows[0]) * uint64_t(n_in) * 4ul;
  if (kRowInRegisters) {
    Vec8 x[kRowVec8s];
    float sum = 0;
    [[unroll]] for (int i = 0; i < kRowVec8s; ++i) x[i] = load_vec8_coherent(row, vec8_offset(i, n_in), n_in);
    float factor = 1;
    if (kInputKind == kNormInput) {
      [[unroll]] for (int i = 0; i < kRowVec8s; ++i) sum = sum_squares(x[i], sum);
      factor = rms_factor(workgroup_sum(sum), n_in, p.norm_eps);
    }
    [[unroll]] for (int i = 0; i < kRowVec8s; ++i) {
      if (kInputKind == kNormInput) {
        precise vec4 a = x[i].a * factor;
        precise vec4 b = x[i].b * factor;
        if (p.norm_weight != 0ul) {
          if (!kPrefetchesNormWeights) norm_weights[i] = norm_weight(i, n_in);
          a = a * norm_weights[i].a;
          b = b * norm_weights[i].b;
        }
        x[i] = Vec8(a, b);
      }
      if (i * kWarps < n_segments) stage_vec8(x[i], i * kWarps + warp_id(), n_segments);
    }
  } else {
    float factor = 1;
    if (kInputKind == kNormInput) factor = rms_factor(row_sum_squares(row, n_in), n_in, p.norm_eps);
    for (int first = 0; first < n_segments; first += kWarps) {
      int s = first + warp_id(), offset = s < n_segments ? s * kSegmentElems + lane_id() * 8 : n_in + 8;
      Vec8 x = load_vec8_coherent(row, offset, n_in);
      if (kInputKind == kGatedNormInput) x = gated_norm(x, offset, n_in);
      if (kInputKind == kNormInput) x = apply_norm(x, factor, p.norm_weight, offset, n_in);
      stage_vec8(x, s, n_segments);
    }
  }
  barrier();
}
