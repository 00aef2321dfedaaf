// Parameters of the matmul kernels, the tile of a workgroup, and the epilogue: scale, bias, activation, residual.
#include "moe_route.glsl"
#include "counter_sync.glsl"
layout(constant_id = kSpecMatmulGatedAct) const int kGatedAct = 0;  // parts 0 and 1 are gate and up: out = act(gate) * up
layout(constant_id = kSpecMatmulExpertMode) const int kExpertMode = 0;

layout(set = 0, binding = 0, scalar) uniform Block { LinearParams p; };

const int kSegmentBytes = kPanelRows * (HEADER_BYTES + kSegmentGroups * GROUP_BYTES);

uint64_t panel_at(Matrix matrix, int panel, int expert) {
  return matrix.bytes + uint64_t(expert) * matrix.matrix_bytes + uint64_t(panel) * matrix.panel_bytes;
}

// Finds the matrix of this workgroup; returns the index of its tile of n_outputs within that matrix.
int select_part(int n_outputs, out int part) {
  int output_tile = int(gl_WorkGroupID.x);
  part = 0;
  for (; kGatedAct == 0 && part + 1 < p.n_parts; ++part) {
    int n_output_tiles = (p.parts[part].n_out + n_outputs - 1) / n_outputs;
    if (output_tile < n_output_tiles) break;
    output_tile -= n_output_tiles;
  }
  return output_tile;
}

// Returns the number of rows of the workgroup's tile (at most tile_rows), the first row and the expert. 0: nothing to do.
int select_tile(int tile_rows, out int expert, out int first) {
  int y = int(gl_WorkGroupID.y);
  expert = 0;
  first = y * tile_rows;
  if (kExpertMode == kSortedTiles) {
    if (y >= Ints(p.n_tiles).data[0]) return 0;
    expert = Ints(p.tiles).data[3 * y];
    first = Ints(p.tiles).data[3 * y + 1];
    return Ints(p.tiles).data[3 * y + 2];
  }
  int n = min(tile_rows, rows_of(p.n_rows) * (kExpertMode == kPairPerTile ? p.n_experts_used : p.vectors_per_row) - first);
  if (n > 0 && kExpertMode == kPairPerTile) {
    expert = kRouteCapacity > 1 ? selected_ids[first] : CoherentInts(p.expert_ids).data[first];
  }
  return max(n, 0);
}

// Epilogue of one sum.
float scale_and_bias(float sum, int part, int expert, int o) {
  precise float value = sum;
  if (kExpertMode != kDense && p.expert_scales[part] != 0ul) value = value * Floats(p.expert_scales[part]).data[expert];
  if (p.biases[part] != 0ul) value = value + Floats(p.biases[part]).data[expert * p.parts[part].n_out + o];
  return value;
}

uint64_t result_offset(int part, int o, int result) {
  return (uint64_t(result) * uint64_t(p.parts[part].n_out) + uint64_t(o)) * 4ul;
}
// 0 without a residual.
float residual(int part, int o, int result) {
  return p.residual != 0ul ? CoherentFloats(p.residual + result_offset(part, o, result)).data[0] : 0.0;
}

void write_out(int part, int expert, int o, int result, float sum, float up_sum, float residual_value) {
  precise float value = scale_and_bias(sum, part, expert, o);
  if (kGatedAct != 0) value = gated(p.act, value, scale_and_bias(up_sum, 1, expert, o));
  if (p.residual != 0ul) value = residual_value + value;
  CoherentFloats(p.outs[part] + result_offset(part, o, result)).data[0] = value;
}
