// out[m, o] = sum_k x[m, k] * weight[o, k]: matrices times few or many rows of activations, one module per format.
// One thread per output row, 32 of them a panel; M rows of activations at once. Either the warps of a workgroup share a
// panel's segments (kSplit, decode) or each has a panel of its own (prompts). Sums: a segment's value is exact integers
// and then the fewest float operations; segments are added in order within a split, splits in order. So the result does
// not depend on M, kSplit or where x was rounded. Moves each weight once per M rows.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "panel.glsl"
#include FORMAT
#include "product.glsl"

layout(constant_id = 1) const int M = 1;        // rows of activations at once
layout(constant_id = 2) const int kSplit = 1;   // the warps of a panel share its segments
layout(constant_id = 4) const int kRounds = 0;  // x is floats; normed and rounded here. M is 1
layout(constant_id = 5) const int kQuads = 1;   // sixteens of inputs there is room for, where kRounds

shared uvec2 x_quants[2 * kQuads];
shared float x_scales[kQuads / 2 + 1];
shared int x_sums[kQuads / 2 + 1];
shared float partial[kSplit * (1 + kGated) * M * kThreads + 1];

int x_rows[M], results[M];

#if ROUNDED_BLOCK > 0
const int kKept = 2;  // segments of up to 4096 inputs that each of 8 warps has

void keep_rounded(Eight x, int s, int n_segments) {
  RoundedEight r = round_eight(x, ROUNDED_BLOCK);
  if (s >= n_segments) return;
  x_quants[s * 32 + lane_id()] = r.words;
  if (lane_id() % 4 == 0) {
    x_scales[s * kSegmentGroups + lane_id() / 4] = r.scale;
    x_sums[s * kSegmentGroups + lane_id() / 4] = r.sum;
  }
}

// Norms and rounds the workgroup's row into shared memory.
void round_input() {
  int n_in = p.parts[0].n_in, n_segments = p.parts[0].n_segments;
  uint64_t row = p.x + uint64_t(x_rows[0]) * uint64_t(n_in) * 4ul;
  if (kQuads <= 256) {  // few enough numbers a thread to keep them, and the norm's weights, from the first look on
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
      if (i * kWarps < n_segments) keep_rounded(x[i], i * kWarps + warp_id(), n_segments);
    }
  } else {
    float factor = 1;
    if (p.is_normed != 0) factor = rms_factor(row_squares(row, n_in), n_in, p.norm_eps);
    for (int first = 0; first < n_segments; first += kWarps) {
      int s = first + warp_id(), at = s < n_segments ? s * kSegmentElems + lane_id() * 8 : n_in + 8;
      Eight x = load_eight(row, at, n_in);
      if (p.is_normed != 0) x = normed(x, factor, p.norm_weight, at, n_in);
      keep_rounded(x, s, n_segments);
    }
  }
  barrier();
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

// The row's segment times that of M rows of activations.
void multiply_segment(Loaded loaded, int s, out float values[M]) {
  Header header = loaded.header;
  int sums[M], mins[M];
  [[unroll]] for (int m = 0; m < M; ++m) {
    values[m] = 0;
    sums[m] = 0;
    mins[m] = 0;
  }
  [[unroll]] for (int g = 0; g < kSegmentGroups; ++g) {
    int w[8];
    expand(loaded.groups[g], w);
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
void round_input() {}

// Nothing is loaded ahead: a segment of floats does not fit the registers.
#define Loaded uint64_t
Loaded load_segment(uint64_t segment) { return segment; }

// Numbers e .. e + 3 of a row of activations, which stay floats; those past the last count as zero.
vec4 x_four(int m, int e) {
  int n_in = p.parts[0].n_in;
  uint64_t row = p.x + uint64_t(x_rows[m]) * uint64_t(n_in) * 4ul;
  if ((n_in & 3) == 0) return e < n_in ? FloatQuads(row).at[e / 4] : vec4(0);
  vec4 x = vec4(0);
  for (int k = 0; k < 4; ++k) {
    if (e + k < n_in) x[k] = Floats(row).at[e + k];
  }
  return x;
}

void multiply_segment(Loaded segment, int s, out float values[M]) {
  const int kAtOnce = 8;  // pieces under way
  [[unroll]] for (int m = 0; m < M; ++m) values[m] = 0;
  for (int j = 0; j < kSegmentElems / PIECE_ELEMS; j += kAtOnce) {
    uvec4 pieces[kAtOnce];
    [[unroll]] for (int i = 0; i < kAtOnce; ++i) pieces[i] = load_16(segment, 16 * (j + i), lane_id());
    [[unroll]] for (int i = 0; i < kAtOnce; ++i) {
      [[unroll]] for (int k = 0; k < PIECE_ELEMS; k += 4) {
        [[unroll]] for (int m = 0; m < M; ++m) {
          vec4 x = x_four(m, s * kSegmentElems + (j + i) * PIECE_ELEMS + k);
          precise float value = values[m];
          [[unroll]] for (int c = 0; c < 4; ++c) value = fma(element(pieces[i], k + c), x[c], value);
          values[m] = value;
        }
      }
    }
  }
}
#endif

// Segments of splits first, first + step, ... of one panel, added in order; the first of them is `loaded`. Nothing more is
// loaded ahead: registers for a second segment cost more in workgroups at once than they win.
void multiply_panel(Matrix matrix, uint64_t weights, Loaded loaded, int first, int step, out float totals[M]) {
  int begin = first * matrix.n_segments / matrix.n_splits;
  [[unroll]] for (int m = 0; m < M; ++m) totals[m] = 0;
  for (int split = first; split < matrix.n_splits; split += step) {
    float sums[M];
    [[unroll]] for (int m = 0; m < M; ++m) sums[m] = 0;
    int end = (split + 1) * matrix.n_segments / matrix.n_splits;
    for (int s = split * matrix.n_segments / matrix.n_splits; s < end; ++s) {
      if (s != begin) loaded = load_segment(weights + uint64_t(s) * uint64_t(kSegmentBytes));
      float values[M];
      multiply_segment(loaded, s, values);
      [[unroll]] for (int m = 0; m < M; ++m) {
        precise float sum = sums[m] + values[m];
        sums[m] = sum;
      }
    }
    [[unroll]] for (int m = 0; m < M; ++m) {
      precise float total = totals[m] + sums[m];
      totals[m] = total;
    }
  }
}

// Which rows, and of which expert. The number of rows there are; none: nothing to do.
int find_rows(out int expert) {
  int first, n = find_tile(M, expert, first);
  [[unroll]] for (int m = 0; m < M && n > 0; ++m) {  // rows past the last repeat it
    int at = first + min(m, n - 1);
    results[m] = kExperts == 2 ? Ints(p.order).at[at] : at;
    x_rows[m] = kExperts != 0 && p.x_per_used == 0 ? results[m] / p.n_used : results[m];
  }
  return n;
}

void main() {
  int n_splits = p.parts[0].n_splits, warps = kSplit != 0 ? n_splits : 1;
  int per_block = kWarps / warps, local = warp_id() / warps, split = kSplit != 0 ? warp_id() % warps : 0;
  int part, block = find_part(kPanelRows * per_block, part);
  int panel = block * per_block + local, n_out = p.parts[part].n_out, expert;
  int n_rows = find_rows(expert);
  if (n_rows == 0) return;
  // The first weights are on their way before the activations are looked at.
  bool is_inside = panel * kPanelRows < n_out;
  int safe_panel = is_inside ? panel : 0;
  uint64_t begin = uint64_t(split * p.parts[0].n_segments / n_splits) * uint64_t(kSegmentBytes);
  uint64_t weights = panel_at(p.parts[part], safe_panel, expert);
  Loaded loaded = load_segment(weights + begin);
  if (kRounds != 0) round_input();
  float totals[M], ups[M];
  [[unroll]] for (int m = 0; m < M; ++m) {
    totals[m] = 0;
    ups[m] = 0;
  }
  if (is_inside) {
    multiply_panel(p.parts[part], weights, loaded, split, warps, totals);
    if (kGated != 0) {
      uint64_t up_weights = panel_at(p.parts[1], panel, expert);
      multiply_panel(p.parts[1], up_weights, load_segment(up_weights + begin), split, warps, ups);
    }
  }
  if (kSplit == 0) {
    int o = panel * kPanelRows + lane_id();
    [[unroll]] for (int m = 0; m < M; ++m) {
      if (o < n_out && m < n_rows) write_out(part, expert, o, results[m], totals[m], ups[m]);
    }
    return;
  }
  [[unroll]] for (int m = 0; m < M; ++m) {
    partial[(warp_id() * M + m) * 32 + lane_id()] = totals[m];
    if (kGated != 0) partial[M * kThreads + (warp_id() * M + m) * 32 + lane_id()] = ups[m];
  }
  barrier();
  for (int i = thread_id(); i < per_block * M * kPanelRows; i += kThreads) {
    int row = i % kPanelRows, m = i / kPanelRows % M, which = i / (kPanelRows * M);
    int o = (block * per_block + which) * kPanelRows + row;
    if (o >= n_out || m >= n_rows) continue;
    float sum = 0, up_sum = 0;
    for (int w = 0; w < warps; ++w) {
      int at = ((which * warps + w) * M + m) * 32 + row;
      precise float next = sum + partial[at];
      sum = next;
      if (kGated != 0) {
        precise float next_up = up_sum + partial[M * kThreads + at];
        up_sum = next_up;
      }
    }
    write_out(part, expert, o, results[m], sum, up_sum);
  }
}
