// A row in the registers of a workgroup: a thread has eight elements of every kWarps-th segment, from its warp's on. Sums of squares
// are those of row_sum_squares().
layout(constant_id = kSpecRowVec8s) const int kRowVec8s = 1;  // per thread, for rows of up to 2048 times as many elements; 0: not used
const int kMaxRowVec8s = kMaxRegisterRow / (kThreads * 8);

Vec8 row_vec8s[kMaxRowVec8s], row_norm_weights[kMaxRowVec8s];

int row_first_segment = 0;  // of the workgroup, if several share a row
int row_segment(int i) { return row_first_segment + i * kWarps + warp_id(); }
int row_offset(int i, int width) {  // past the row's end: width or more
  int offset = row_segment(i) * kSegmentElems + lane_id() * 8;
  return row_segment(i) * kSegmentElems < width ? offset : width + 8;
}

// Before the wait: other dispatches do not write weights. weight 0: none.
void load_norm_weights(uint64_t weight, int width) {
  [[unroll]] for (int i = 0; i < kRowVec8s; ++i) {
    row_norm_weights[i] = weight != 0ul ? load_vec8(weight, row_offset(i, width), width) : Vec8(vec4(1), vec4(1));
  }
}

// REQUIRES: every thread of the workgroup calls.
float row_sum_squares() {
  float sum = 0;
  [[unroll]] for (int i = 0; i < kRowVec8s; ++i) sum = sum_squares(row_vec8s[i], sum);
  return workgroup_sum(sum);
}

// x * factor * weight, as floats (out 0: none) and quantized (q8.block 0: not). REQUIRES: every thread of the workgroup calls.
void write_normed_row(uint64_t to, Q8Activation q8, int row, int width, float factor) {
  [[unroll]] for (int i = 0; i < kRowVec8s; ++i) {
    int offset = row_offset(i, width);
    precise vec4 a = row_vec8s[i].a * factor;
    precise vec4 b = row_vec8s[i].b * factor;
    a = a * row_norm_weights[i].a;
    b = b * row_norm_weights[i].b;
    Vec8 y = Vec8(a, b);
    if (to != 0ul) store_vec8(to + uint64_t(row) * uint64_t(width) * 4ul, offset, width, y);
    if (q8.block == 0) continue;
    Q8Vec8 quantized = quantize_vec8(y, q8.block);
    if (row_segment(i) * kSegmentElems < width) store_q8(quantized, q8, row, row_segment(i));
  }
}
