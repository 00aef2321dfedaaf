// Sorts (row, expert) pairs by expert and cuts them into tiles; one workgroup. The order within an expert does not matter: each
// pair is multiplied independently.
#version 460
#include "memory.glsl"
#include "backend/vulkan/params/moe.h"
#include "counter_sync.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { SortByExpertParams p; };

shared int expert_offsets[kMaxExperts];  // counts, then the next free index per expert
shared ivec2 thread_sums[kThreads];  // pairs and tiles of each thread's experts, then of all up to it

const int kThreadExperts = kMaxExperts / kThreads;

// Writes the tiles of the thread's experts, which begin at pair `at.x` and tile `at.y`.
void write_tiles(ivec2 at) {
  for (int i = 0; i < kThreadExperts; ++i) {
    int e = thread_id() * kThreadExperts + i, n = expert_offsets[e];
    for (int k = 0; k < n; k += p.tile_rows, ++at.y) {
      CoherentInts(p.tiles).data[3 * at.y] = e;
      CoherentInts(p.tiles).data[3 * at.y + 1] = at.x + k;
      CoherentInts(p.tiles).data[3 * at.y + 2] = min(p.tile_rows, n - k);
    }
    expert_offsets[e] = at.x;
    at.x += n;
  }
}

void main() {
  wait_producers(p.sync);
  int n_pairs = rows_of(p.n_rows) * p.n_experts_used;
  for (int e = thread_id(); e < kMaxExperts; e += kThreads) expert_offsets[e] = 0;
  barrier();
  for (int i = thread_id(); i < n_pairs; i += kThreads) atomicAdd(expert_offsets[CoherentInts(p.ids).data[i]], 1);
  barrier();
  ivec2 own = ivec2(0);
  for (int i = 0; i < kThreadExperts; ++i) {
    int n = expert_offsets[thread_id() * kThreadExperts + i];
    own += ivec2(n, (n + p.tile_rows - 1) / p.tile_rows);
  }
  thread_sums[thread_id()] = own;
  barrier();
  for (int distance = 1; distance < kThreads; distance *= 2) {
    ivec2 before = thread_id() >= distance ? thread_sums[thread_id() - distance] : ivec2(0);
    barrier();
    thread_sums[thread_id()] += before;
    barrier();
  }
  write_tiles(thread_sums[thread_id()] - own);
  if (thread_id() == 0) CoherentInts(p.n_tiles).data[0] = thread_sums[kThreads - 1].y;
  barrier();
  for (int i = thread_id(); i < n_pairs; i += kThreads) {
    CoherentInts(p.sorted_pairs).data[atomicAdd(expert_offsets[CoherentInts(p.ids).data[i]], 1)] = i;
  }
  signal_done(p.sync);
}
