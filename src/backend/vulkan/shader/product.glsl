// What every kernel of a matrix product is given, which part of it a workgroup has, and what happens to a finished sum.
#include "routing.glsl"
#include "chain.glsl"
layout(constant_id = 3) const int kGated = 0;  // parts 0 and 1 are gate and up: out is act(gate) * up
layout(constant_id = 6) const int kExperts = 0;  // 1: each row and used expert alone (tiles of 1); 2: in tiles of one expert

const int kMaxParts = 4;
struct Params {
  Chain chain;
  Matrix parts[kMaxParts];
  uint64_t outs[kMaxParts], biases[kMaxParts], expert_scales[kMaxParts];
  uint64_t added;  // a residual of part 0
  uint64_t x, norm_weight;
  Rounded rounded;
  uint64_t expert_ids, order, tiles, n_tiles;
  float norm_eps;
  int n_rows, n_parts, act;
  int per_row;             // inputs of each of the n_rows
  int n_used, x_per_used;  // x_per_used: each used expert has an input of its own
  int head_dim;            // of one row's input, made of normed heads behind a gate
  uint64_t gate;
  Route route;                               // where a step of one row finds its experts by itself
  uint64_t mix_weights, last_x, last_gate;  // of mix.comp
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

const int kSegmentBytes = kPanelRows * (HEADER_BYTES + kSegmentGroups * GROUP_BYTES);

uint64_t panel_at(Matrix matrix, int panel, int expert) {
  return matrix.bytes + uint64_t(expert) * matrix.matrix_bytes + uint64_t(panel) * matrix.panel_bytes;
}

// The matrix of this workgroup, which has so many of its outputs: the workgroup's number among those of the same matrix.
int find_part(int n_outputs, out int part) {
  int block = int(gl_WorkGroupID.x);
  part = 0;
  for (; kGated == 0 && part + 1 < p.n_parts; ++part) {
    int n_blocks = (p.parts[part].n_out + n_outputs - 1) / n_outputs;
    if (block < n_blocks) break;
    block -= n_blocks;
  }
  return block;
}

// The number of rows in this workgroup's tile (of at most tile_rows), the first, and their expert. None: nothing to do.
int find_tile(int tile_rows, out int expert, out int first) {
  int y = int(gl_WorkGroupID.y);
  expert = 0;
  first = y * tile_rows;
  if (kExperts == 2) {
    if (y >= Ints(p.n_tiles).at[0]) return 0;
    expert = Ints(p.tiles).at[3 * y];
    first = Ints(p.tiles).at[3 * y + 1];
    return Ints(p.tiles).at[3 * y + 2];
  }
  int n = min(tile_rows, rows_of(p.n_rows) * (kExperts == 1 ? p.n_used : p.per_row) - first);
  if (n > 0 && kExperts == 1) expert = kRouteRoom > 1 ? chosen_ids[first] : PassedInts(p.expert_ids).at[first];
  return max(n, 0);
}

// Scaled and biased.
float finished(float sum, int part, int expert, int o) {
  precise float value = sum;
  if (kExperts != 0 && p.expert_scales[part] != 0ul) value = value * Floats(p.expert_scales[part]).at[expert];
  if (p.biases[part] != 0ul) value = value + Floats(p.biases[part]).at[expert * p.parts[part].n_out + o];
  return value;
}

uint64_t place_of_result(int part, int o, int result) {
  return (uint64_t(result) * uint64_t(p.parts[part].n_out) + uint64_t(o)) * 4ul;
}
// What is added to a result; without a residual, nothing.
float residual(int part, int o, int result) {
  return p.added != 0ul ? PassedFloats(p.added + place_of_result(part, o, result)).at[0] : 0.0;
}

void write_out(int part, int expert, int o, int result, float sum, float up_sum, float added) {
  precise float value = finished(sum, part, expert, o);
  if (kGated != 0) value = gated(p.act, value, finished(up_sum, 1, expert, o));
  if (p.added != 0ul) value = added + value;
  PassedFloats(p.outs[part] + place_of_result(part, o, result)).at[0] = value;
}
