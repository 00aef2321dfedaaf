// Eight numbers a lane, a segment of 256 a warp: how rows are read, normed and rounded to 8 bits, the same wherever it
// happens.
layout(constant_id = 20) const int kRagged = 1;  // 0: rows are whole fours of numbers

struct Eight {
  vec4 a, b;
};

// Numbers past the row's end are zero. REQUIRES: at % 8 == 0.
#define LOAD_EIGHT(name, ones, fours)                               \
  Eight name(uint64_t row, int at, int width) {                     \
    Eight x = Eight(vec4(0), vec4(0));                              \
    if (kRagged == 0 || (width & 3) == 0) {                         \
      if (at + 4 <= width) x.a = fours(row).at[at / 4];             \
      if (at + 8 <= width) x.b = fours(row).at[at / 4 + 1];         \
    } else {                                                        \
      for (int i = 0; i < 4; ++i) {                                 \
        if (at + i < width) x.a[i] = ones(row).at[at + i];          \
        if (at + 4 + i < width) x.b[i] = ones(row).at[at + 4 + i];  \
      }                                                             \
    }                                                               \
    return x;                                                       \
  }
LOAD_EIGHT(load_eight, Floats, FloatQuads)
LOAD_EIGHT(load_passed, PassedFloats, PassedQuads)  // what another dispatch of the step wrote: chain.glsl

void store_eight(uint64_t row, int at, int width, Eight x) {
  if (kRagged == 0 || (width & 3) == 0) {
    if (at + 4 <= width) FloatQuads(row).at[at / 4] = x.a;
    if (at + 8 <= width) FloatQuads(row).at[at / 4 + 1] = x.b;
  } else {
    for (int i = 0; i < 4; ++i) {
      if (at + i < width) Floats(row).at[at + i] = x.a[i];
      if (at + 4 + i < width) Floats(row).at[at + 4 + i] = x.b[i];
    }
  }
}

struct RoundedEight {
  uvec2 words;  // the lane's eight numbers
  int sum;      // of the 32 that four lanes have
  float scale;  // of the lane's block
};

uint packed_bytes(ivec4 q) { return uint((q.x & 255) | (q.y & 255) << 8 | (q.z & 255) << 16 | (q.w & 255) << 24); }

// block: 32 (four lanes share a scale) or 256 (all do).
RoundedEight round_eight(Eight x, int block) {
  vec4 largest4 = max(abs(x.a), abs(x.b));
  float largest = lanes_max(max(max(largest4.x, largest4.y), max(largest4.z, largest4.w)), block / 8);
  precise float inverse = largest > 0 ? 127.0 / largest : 0.0;
  precise float scale = largest / 127.0;
  precise vec4 a = x.a * inverse;
  precise vec4 b = x.b * inverse;
  ivec4 qa = ivec4(roundEven(a));
  ivec4 qb = ivec4(roundEven(b));
  int sum = qa.x + qa.y + qa.z + qa.w + qb.x + qb.y + qb.z + qb.w;
  return RoundedEight(uvec2(packed_bytes(qa), packed_bytes(qb)), lanes_sum_int(sum, 4), scale);
}

// Activations rounded to 8 bits: rows of `stride` bytes, a scale for each 32 or 256 of them, and the sum of each 32.
struct Rounded {
  uint64_t q, scale, sum;
  int stride;  // a multiple of 256
  int block;   // 0: none
};

void store_rounded(RoundedEight r, Rounded to, int row, int segment) {
  int lane = lane_id();
  Pairs(to.q + uint64_t(row) * uint64_t(to.stride) + uint64_t(segment * kSegmentElems)).at[lane] = r.words;
  int group = row * (to.stride / kGroupElems) + segment * kSegmentGroups + lane / 4;
  if (lane % 4 == 0) {
    Ints(to.sum).at[group] = r.sum;
    if (to.block == kGroupElems) Floats(to.scale).at[group] = r.scale;
  }
  if (to.block == kSegmentElems && lane == 0) {
    Floats(to.scale).at[row * (to.stride / kSegmentElems) + segment] = r.scale;
  }
}

float squares(Eight x, float start) {
  precise float sum = start;
  for (int i = 0; i < 4; ++i) sum = fma(x.a[i], x.a[i], sum);
  for (int i = 0; i < 4; ++i) sum = fma(x.b[i], x.b[i], sum);
  return sum;
}

// Of a row, over the whole workgroup: warp w has segments w, w + 8, ...
float row_squares(uint64_t row, int width) {
  int n_segments = (width + kSegmentElems - 1) / kSegmentElems;
  const int kAtOnce = 4;  // on their way
  float sum = 0;
  for (int first = warp_id(); first < n_segments; first += kAtOnce * kWarps) {
    Eight x[kAtOnce];
    [[unroll]] for (int i = 0; i < kAtOnce; ++i) {
      x[i] = load_passed(row, (first + i * kWarps) * kSegmentElems + lane_id() * 8, width);  // past the end: zeros
    }
    [[unroll]] for (int i = 0; i < kAtOnce; ++i) sum = squares(x[i], sum);
  }
  return block_sum(sum);
}

float rms_factor(float sum, int width, float eps) {
  precise float factor = 1.0 / sqrt(sum / float(width) + eps);
  return factor;
}

// x * factor * weight; weight 0: none.
Eight normed(Eight x, float factor, uint64_t weight, int at, int width) {
  precise vec4 a = x.a * factor;
  precise vec4 b = x.b * factor;
  if (weight != 0ul) {
    Eight w = load_eight(weight, at, width);
    a = a * w.a;
    b = b * w.b;
  }
  return Eight(a, b);
}
