// MoE routing: the selected experts of a token and their weights. One workgroup per token.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "moe_route.glsl"
#include "counter_sync.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { RouteParams p; };

void main() {
  int t = int(gl_WorkGroupID.x);
  wait_producers(p.sync);
  if (t < rows_of(p.n_rows)) {
    select_experts(p.route, t);
    write_route(p.route, t, true);
  }
  signal_done(p.sync);
}
