// Heads of q, k and v before attention: keys and values go to the cache, queries to q_out. One warp per head.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "rounding.glsl"
#include "rotation.glsl"
#include "kv.glsl"
#include "head.glsl"

struct Params {
  KvLayer kv;
  HeadPart parts[3];
  uint64_t q_out;
  int n_rows;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

void main() {
  int n_heads = p.parts[0].n_heads + p.parts[1].n_heads + p.parts[2].n_heads;
  int n_tokens = rows_of(p.n_rows), first = int(gl_WorkGroupID.x) * kWarps, index = first + warp_id();
  if (first >= n_tokens * n_heads) return;
  bool is_inside = index < n_tokens * n_heads;
  int t = is_inside ? index / n_heads : 0, head = index % n_heads, which = 0;
  for (; which < 2 && head >= p.parts[which].n_heads; ++which) head -= p.parts[which].n_heads;
  begin_head(p.parts[which], Ints(step.positions).at[t], is_inside);
  prepare_head(p.parts[which], t, head, is_inside);
  bool is_kept = is_inside && which > 0;
  int position = is_kept ? Ints(step.positions).at[t] : 0;
  uint64_t at = 0ul;
  if (is_kept) {
    int page = page_at(table_of(p.kv.group, Ints(step.seq_of_token).at[t]), position);
    at = head_of(p.kv, page, head) + uint64_t(which == 2 ? p.kv.value_begin : 0);
  }
  store_head(at, which == 1, padded(which == 1 ? p.kv.k_dim : p.kv.v_dim), position, is_kept);
  if (which > 0 || !is_inside) return;
  int dim = p.parts[0].dim, base = warp_id() * kEights * kSegmentElems;
  for (int i = lane_id(); i < dim; i += 32) {
    Floats(p.q_out).at[(t * p.parts[0].n_heads + head) * dim + i] = head_values[base + i];
  }
}
