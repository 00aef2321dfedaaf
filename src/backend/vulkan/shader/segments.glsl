// Dot products of a weight row's segment (256 inputs) with M rows of activations: the same operations in the same order in every
// kernel. Activations are read quantized from memory, or from shared memory if the workgroup prepared them (kStagesRow, M = 1;
// prologue.glsl).
layout(constant_id = kSpecMatmulStagesRow) const int kStagesRow = 0;
layout(constant_id = kSpecMatmulRowQuads) const int kRowQuads = 1;  // row capacity, in uvec4 (16 int8 inputs); with kStagesRow

int x_rows[M];

#if Q8_BLOCK > 0
const bool kStagesSegment = false;
shared uvec2 x_quants[2 * kRowQuads];
shared float x_scales[kRowQuads / 2 + 1];
shared int x_sums[kRowQuads / 2 + 1];

// Stores segment s of the workgroup's row, eight elements per lane. REQUIRES: every thread of the workgroup calls.
void stage_vec8(Vec8 x, int s, int n_segments) {
  Q8Vec8 quantized = quantize_vec8(x, Q8_BLOCK);
  if (s >= n_segments) return;
  x_quants[s * 32 + lane_id()] = quantized.words;
  if (lane_id() % 4 == 0) {
    x_scales[s * kSegmentGroups + lane_id() / 4] = quantized.scale;
    x_sums[s * kSegmentGroups + lane_id() / 4] = quantized.sum;
  }
}

ivec4 x_quad(int m, int s, int i) {
  if (kStagesRow != 0) return ivec4(x_quants[s * 32 + 2 * i], x_quants[s * 32 + 2 * i + 1]);
  return ivec4(Quads(p.q8.q + uint64_t(x_rows[m]) * uint64_t(p.q8.stride) + uint64_t(s * kSegmentElems)).data[i]);
}
float x_scale(int m, int s, int g) {
  if (kStagesRow != 0) return x_scales[s * kSegmentGroups + g];
  if (Q8_BLOCK == 32) return Floats(p.q8.scale).data[x_rows[m] * (p.q8.stride / 32) + s * kSegmentGroups + g];
  return Floats(p.q8.scale).data[x_rows[m] * (p.q8.stride / kSegmentElems) + s];
}
int x_sum(int m, int s, int g) {
  if (kStagesRow != 0) return x_sums[s * kSegmentGroups + g];
  return Ints(p.q8.sum).data[x_rows[m] * (p.q8.stride / 32) + s * kSegmentGroups + g];
}

int dot_16(int a, int b, int c, int d, ivec4 x) {
  return dotPacked4x8EXT(a, x.x) + dotPacked4x8EXT(b, x.y) + dotPacked4x8EXT(c, x.z) + dotPacked4x8EXT(d, x.w);
}

// All bytes of the thread's row in one segment, in registers.
struct PrefetchedSegment {
  Header header;
  Raw groups[kSegmentGroups];
};
PrefetchedSegment load_segment(uint64_t segment) {
  PrefetchedSegment prefetched;
  prefetched.header = load_header(segment, lane_id());
  [[unroll]] for (int g = 0; g < kSegmentGroups; ++g) prefetched.groups[g] = load_group(segment, lane_id(), g);
  return prefetched;
}

// Multiplies a segment with M rows of activations. As soon as a group's registers are consumed, the same group of the segment
// at `next` (0: none) is loaded into them: loads stay in flight without extra registers.
void multiply_segment(inout PrefetchedSegment prefetched, int s, uint64_t next, out float values[M]) {
  Header header = prefetched.header;
  bool has_next = next != 0ul;
  if (has_next) prefetched.header = load_header(next, lane_id());
  int sums[M], mins[M];
  [[unroll]] for (int m = 0; m < M; ++m) {
    values[m] = 0;
    sums[m] = 0;
    mins[m] = 0;
  }
  [[unroll]] for (int g = 0; g < kSegmentGroups; ++g) {
    int w[8];
    unpack(prefetched.groups[g], w);
    if (has_next) prefetched.groups[g] = load_group(next, lane_id(), g);
    [[unroll]] for (int m = 0; m < M; ++m) {
      int low = dot_16(w[0], w[1], w[2], w[3], x_quad(m, s, 2 * g));
      int high = dot_16(w[4], w[5], w[6], w[7], x_quad(m, s, 2 * g + 1));
#if Q8_BLOCK == 32
      precise float scale = header_scale(header, g) * x_scale(m, s, g);
      precise float value = fma(float(low + high), scale, values[m]);
#if HAS_MIN
      precise float x_total = x_scale(m, s, g) * float(x_sum(m, s, g));
      value = fma(header_min(header, g), x_total, value);
#endif
      values[m] = value;
#elif HALF_GROUP_SCALES
      sums[m] += header_scale(header, 2 * g) * low + header_scale(header, 2 * g + 1) * high;
#else
      sums[m] += header_scale(header, g) * (low + high);
#if HAS_MIN
      mins[m] += header_min(header, g) * x_sum(m, s, g);
#endif
#endif
    }
  }
#if Q8_BLOCK == 256
  [[unroll]] for (int m = 0; m < M; ++m) {
    precise float value = header_d(header) * float(sums[m]);
#if HAS_MIN
    value = fma(-header_dmin(header), float(mins[m]), value);
#endif
    value = value * x_scale(m, s, 0);
    values[m] = value;
  }
#endif
}
#else
// Prefill: one segment of the activation rows at a time, shared by all warps.
const bool kStagesSegment = kSplitK == 0 && kStagesRow == 0;
const int kRowVec4s = kSegmentElems / 4;
shared vec4 x_floats[kStagesSegment ? M * kRowVec4s : 4 * kRowQuads];
shared int stage_rows[M];

void stage_vec8(Vec8 x, int s, int n_segments) {
  if (s >= n_segments) return;
  x_floats[s * 64 + 2 * lane_id()] = x.a;
  x_floats[s * 64 + 2 * lane_id() + 1] = x.b;
}

// A whole segment of floats does not fit registers.
layout(constant_id = kSpecMatmulLoadsInFlight) const int kLoadsInFlight = 8;  // 16-byte loads
const int kMaxLoadsInFlight = 32;
struct PrefetchedSegment {
  uint64_t segment;
  uvec4 pieces[kMaxLoadsInFlight];
};
PrefetchedSegment load_segment(uint64_t segment) {
  PrefetchedSegment prefetched;
  prefetched.segment = segment;
  [[unroll]] for (int i = 0; i < kLoadsInFlight; ++i) prefetched.pieces[i] = load_16(segment, 16 * i, lane_id());
  return prefetched;
}

// Elements e .. e + 3 of a float activation row; zero past the end.
vec4 load_vec4(int x_row, int e) {
  int n_in = p.parts[0].n_in;
  uint64_t row = p.x + uint64_t(x_row) * uint64_t(n_in) * 4ul;
  if ((n_in & 3) == 0) return e < n_in ? CoherentQuads(row).data[e / 4] : vec4(0);
  vec4 x = vec4(0);
  for (int k = 0; k < 4; ++k) {
    if (e + k < n_in) x[k] = CoherentFloats(row).data[e + k];
  }
  return x;
}

vec4 x_vec4(int m, int s, int in_segment) {
  if (kStagesSegment) return x_floats[m * kRowVec4s + in_segment / 4];
  if (kStagesRow != 0) return x_floats[(s * kSegmentElems + in_segment) / 4];
  return load_vec4(x_rows[m], s * kSegmentElems + in_segment);
}

// REQUIRES: every thread of the workgroup calls.
void stage_segment(int s) {
  if (thread_id() == 0) {
    [[unroll]] for (int m = 0; m < M; ++m) stage_rows[m] = x_rows[m];
  }
  barrier();  // the previous segment has been read
  for (int i = thread_id(); i < M * kRowVec4s; i += kThreads) {
    x_floats[i] = load_vec4(stage_rows[i / kRowVec4s], s * kSegmentElems + i % kRowVec4s * 4);
  }
  barrier();
}

void multiply_segment(inout PrefetchedSegment prefetched, int s, uint64_t next, out float values[M]) {
  const int kPieces = kSegmentElems / PIECE_ELEMS;
  if (kStagesSegment) stage_segment(s);
  [[unroll]] for (int m = 0; m < M; ++m) values[m] = 0;
  for (int j = 0; j < kPieces; j += kLoadsInFlight) {
    bool is_end = j + kLoadsInFlight >= kPieces;
    uint64_t from = is_end ? next : prefetched.segment + uint64_t(16 * kPanelRows * (j + kLoadsInFlight));
    [[unroll]] for (int i = 0; i < kLoadsInFlight; ++i) {
      uvec4 piece = prefetched.pieces[i];
      if (from != 0ul) prefetched.pieces[i] = load_16(from, 16 * i, lane_id());
      [[unroll]] for (int k = 0; k < PIECE_ELEMS; k += 4) {
        [[unroll]] for (int m = 0; m < M; ++m) {
          vec4 x = x_vec4(m, s, (j + i) * PIECE_ELEMS + k);
          precise float value = values[m];
          [[unroll]] for (int c = 0; c < 4; ++c) value = fma(element(piece, k + c), x[c], value);
          values[m] = value;
        }
      }
    }
  }
  prefetched.segment = next;
}
#endif
