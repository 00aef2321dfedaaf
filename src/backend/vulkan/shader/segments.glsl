// A row's segment of 256 inputs times that of M rows of activations: the same few operations in one order, wherever it is
// done. Activations are read as they were rounded, or from shared memory, where the workgroup made them ready (kRounds,
// M is 1): input.glsl.
layout(constant_id = 4) const int kRounds = 0;
layout(constant_id = 5) const int kQuads = 1;  // sixteens of inputs there is room for, where kRounds

int x_rows[M];

#if ROUNDED_BLOCK > 0
const bool kStages = false;
shared uvec2 x_quants[2 * kQuads];
shared float x_scales[kQuads / 2 + 1];
shared int x_sums[kQuads / 2 + 1];

// Segment s of the workgroup's row, eight numbers a lane. REQUIRES: every thread of the workgroup calls.
void keep_eight(Eight x, int s, int n_segments) {
  RoundedEight r = round_eight(x, ROUNDED_BLOCK);
  if (s >= n_segments) return;
  x_quants[s * 32 + lane_id()] = r.words;
  if (lane_id() % 4 == 0) {
    x_scales[s * kSegmentGroups + lane_id() / 4] = r.scale;
    x_sums[s * kSegmentGroups + lane_id() / 4] = r.sum;
  }
}

ivec4 x_quad(int m, int s, int i) {
  if (kRounds != 0) return ivec4(x_quants[s * 32 + 2 * i], x_quants[s * 32 + 2 * i + 1]);
  return ivec4(Quads(p.rounded.q + uint64_t(x_rows[m]) * uint64_t(p.rounded.stride) + uint64_t(s * kSegmentElems)).at[i]);
}
float x_scale(int m, int s, int g) {
  if (kRounds != 0) return x_scales[s * kSegmentGroups + g];
  if (ROUNDED_BLOCK == 32) return Floats(p.rounded.scale).at[x_rows[m] * (p.rounded.stride / 32) + s * kSegmentGroups + g];
  return Floats(p.rounded.scale).at[x_rows[m] * (p.rounded.stride / kSegmentElems) + s];
}
int x_sum(int m, int s, int g) {
  if (kRounds != 0) return x_sums[s * kSegmentGroups + g];
  return Ints(p.rounded.sum).at[x_rows[m] * (p.rounded.stride / 32) + s * kSegmentGroups + g];
}

int dot_16(int a, int b, int c, int d, ivec4 x) {
  return dotPacked4x8EXT(a, x.x) + dotPacked4x8EXT(b, x.y) + dotPacked4x8EXT(c, x.z) + dotPacked4x8EXT(d, x.w);
}

// Every byte the thread's row has in one segment, on its way from memory.
struct Loaded {
  Header header;
  Raw groups[kSegmentGroups];
};
Loaded load_segment(uint64_t segment) {
  Loaded loaded;
  loaded.header = load_header(segment, lane_id());
  [[unroll]] for (int g = 0; g < kSegmentGroups; ++g) loaded.groups[g] = load_group(segment, lane_id(), g);
  return loaded;
}

// The row's segment times that of M rows of activations. Each group's registers take the same group of the segment at `next`
// (0: none) as soon as they are read: something is always on its way, in no more registers.
void multiply_segment(inout Loaded loaded, int s, uint64_t next, out float values[M]) {
  Header header = loaded.header;
  bool has_next = next != 0ul;
  if (has_next) loaded.header = load_header(next, lane_id());
  int sums[M], mins[M];
  [[unroll]] for (int m = 0; m < M; ++m) {
    values[m] = 0;
    sums[m] = 0;
    mins[m] = 0;
  }
  [[unroll]] for (int g = 0; g < kSegmentGroups; ++g) {
    int w[8];
    expand(loaded.groups[g], w);
    if (has_next) loaded.groups[g] = load_group(next, lane_id(), g);
    [[unroll]] for (int m = 0; m < M; ++m) {
      int low = dot_16(w[0], w[1], w[2], w[3], x_quad(m, s, 2 * g));
      int high = dot_16(w[4], w[5], w[6], w[7], x_quad(m, s, 2 * g + 1));
#if ROUNDED_BLOCK == 32
      precise float scale = header_scale(header, g) * x_scale(m, s, g);
      precise float value = fma(float(low + high), scale, values[m]);
#if HAS_MIN
      precise float x_total = x_scale(m, s, g) * float(x_sum(m, s, g));
      value = fma(header_min(header, g), x_total, value);
#endif
      values[m] = value;
#elif HALF_SCALES
      sums[m] += header_scale(header, 2 * g) * low + header_scale(header, 2 * g + 1) * high;
#else
      sums[m] += header_scale(header, g) * (low + high);
#if HAS_MIN
      mins[m] += header_min(header, g) * x_sum(m, s, g);
#endif
#endif
    }
  }
#if ROUNDED_BLOCK == 256
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
// Rows of activations of a prompt: a segment of them at a time, for all warps.
const bool kStages = kSplit == 0 && kRounds == 0;
const int kRowFours = kSegmentElems / 4;
shared vec4 x_floats[kStages ? M * kRowFours : 4 * kQuads];
shared int stage_rows[M];

void keep_eight(Eight x, int s, int n_segments) {
  if (s >= n_segments) return;
  x_floats[s * 64 + 2 * lane_id()] = x.a;
  x_floats[s * 64 + 2 * lane_id() + 1] = x.b;
}

// A whole segment of floats does not fit the registers.
layout(constant_id = 22) const int kAtOnce = 8;  // pieces under way
const int kMostAtOnce = 32;
struct Loaded {
  uint64_t segment;
  uvec4 pieces[kMostAtOnce];
};
Loaded load_segment(uint64_t segment) {
  Loaded loaded;
  loaded.segment = segment;
  [[unroll]] for (int i = 0; i < kAtOnce; ++i) loaded.pieces[i] = load_16(segment, 16 * i, lane_id());
  return loaded;
}

// Numbers e .. e + 3 of a row of activations, which stay floats; those past the last count as zero.
vec4 load_four(int x_row, int e) {
  int n_in = p.parts[0].n_in;
  uint64_t row = p.x + uint64_t(x_row) * uint64_t(n_in) * 4ul;
  if ((n_in & 3) == 0) return e < n_in ? PassedQuads(row).at[e / 4] : vec4(0);
  vec4 x = vec4(0);
  for (int k = 0; k < 4; ++k) {
    if (e + k < n_in) x[k] = PassedFloats(row).at[e + k];
  }
  return x;
}

vec4 x_four(int m, int s, int in_segment) {
  if (kStages) return x_floats[m * kRowFours + in_segment / 4];
  if (kRounds != 0) return x_floats[(s * kSegmentElems + in_segment) / 4];
  return load_four(x_rows[m], s * kSegmentElems + in_segment);
}

// REQUIRES: every thread of the workgroup calls.
void stage_segment(int s) {
  if (thread_id() == 0) {
    [[unroll]] for (int m = 0; m < M; ++m) stage_rows[m] = x_rows[m];
  }
  barrier();  // what was there has been read
  for (int i = thread_id(); i < M * kRowFours; i += kThreads) {
    x_floats[i] = load_four(stage_rows[i / kRowFours], s * kSegmentElems + i % kRowFours * 4);
  }
  barrier();
}

void multiply_segment(inout Loaded loaded, int s, uint64_t next, out float values[M]) {
  const int kPieces = kSegmentElems / PIECE_ELEMS;
  if (kStages) stage_segment(s);
  [[unroll]] for (int m = 0; m < M; ++m) values[m] = 0;
  for (int j = 0; j < kPieces; j += kAtOnce) {
    bool is_end = j + kAtOnce >= kPieces;
    uint64_t from = is_end ? next : loaded.segment + uint64_t(16 * kPanelRows * (j + kAtOnce));
    [[unroll]] for (int i = 0; i < kAtOnce; ++i) {
      uvec4 piece = loaded.pieces[i];
      if (from != 0ul) loaded.pieces[i] = load_16(from, 16 * i, lane_id());
      [[unroll]] for (int k = 0; k < PIECE_ELEMS; k += 4) {
        [[unroll]] for (int m = 0; m < M; ++m) {
          vec4 x = x_four(m, s, (j + i) * PIECE_ELEMS + k);
          precise float value = values[m];
          [[unroll]] for (int c = 0; c < 4; ++c) value = fma(element(piece, k + c), x[c], value);
          values[m] = value;
        }
      }
    }
  }
  loaded.segment = next;
}
#endif
