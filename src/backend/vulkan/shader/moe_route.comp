// MoE routing: the selected experts of a token and their weights. One workgroup per token; the last one that finishes sorts the
// pairs of all tokens by expert, if matmuls take them in tiles.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "moe_route.glsl"
#include "sort_by_expert.glsl"
#include "counter_sync.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { RouteParams p; };

shared uint is_last_workgroup;

// REQUIRES: every thread of the workgroup calls.
bool is_last() {
  memoryBarrierBuffer();
  barrier();
  if (thread_id() == 0) {
    uint before = atomicAdd(Counter(p.n_done).count, 1u);
    is_last_workgroup = before + 1u == gl_NumWorkGroups.x ? 1u : 0u;
    if (is_last_workgroup != 0u) Counter(p.n_done).count = 0u;
  }
  barrier();
  memoryBarrierBuffer();
  return is_last_workgroup != 0u;
}

void main() {
  int t = int(gl_WorkGroupID.x);
  wait_producers(p.sync);
  if (t < rows_of(p.n_rows)) {
    select_experts(p.route, t);
    write_route(p.route, t, true);
  }
  if (p.tiles.tile_rows > 0 && is_last()) {
    sort_by_expert(p.tiles, p.route.ids, rows_of(p.n_rows) * p.route.n_experts_used);
  }
  signal_done(p.sync);
}
