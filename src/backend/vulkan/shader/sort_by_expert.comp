// Sorts (row, expert) pairs by expert and cuts them into tiles; one workgroup. The order within an expert does not matter: each
// pair is multiplied independently.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/moe.h"

layout(set = 0, binding = 0, scalar) uniform Block { SortByExpertParams p; };

shared int expert_offsets[kMaxExperts];  // counts, then the next free index per expert

void main() {
  int n_pairs = rows_of(p.n_rows) * p.n_experts_used;
  for (int e = thread_id(); e < p.n_experts; e += kThreads) expert_offsets[e] = 0;
  barrier();
  for (int i = thread_id(); i < n_pairs; i += kThreads) atomicAdd(expert_offsets[Ints(p.ids).data[i]], 1);
  barrier();
  if (thread_id() == 0) {
    int begin = 0, n_tiles = 0;
    for (int e = 0; e < p.n_experts; ++e) {
      int n = expert_offsets[e];
      for (int k = 0; k < n; k += p.tile_rows) {
        Ints(p.tiles).data[3 * n_tiles] = e;
        Ints(p.tiles).data[3 * n_tiles + 1] = begin + k;
        Ints(p.tiles).data[3 * n_tiles + 2] = min(p.tile_rows, n - k);
        ++n_tiles;
      }
      expert_offsets[e] = begin;
      begin += n;
    }
    Ints(p.n_tiles).data[0] = n_tiles;
  }
  barrier();
  for (int i = thread_id(); i < n_pairs; i += kThreads) {
    Ints(p.sorted_pairs).data[atomicAdd(expert_offsets[Ints(p.ids).data[i]], 1)] = i;
  }
}
