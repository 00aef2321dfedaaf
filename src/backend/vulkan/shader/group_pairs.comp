// Brings the pairs of a row and an expert it uses together by expert, cut into tiles; one workgroup. In which order the
// pairs of an expert stand does not matter: each is multiplied alone.
#version 460
#include "memory.glsl"

const int kMaxExperts = 1024;
struct Params {
  uint64_t ids, order, tiles, n_tiles;
  int n_rows, n_used, n_experts, tile_rows;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

shared int places[kMaxExperts];  // counts, then where the next pair goes

void main() {
  int n_pairs = rows_of(p.n_rows) * p.n_used;
  for (int e = thread_id(); e < p.n_experts; e += kThreads) places[e] = 0;
  barrier();
  for (int i = thread_id(); i < n_pairs; i += kThreads) atomicAdd(places[Ints(p.ids).at[i]], 1);
  barrier();
  if (thread_id() == 0) {
    int begin = 0, n_tiles = 0;
    for (int e = 0; e < p.n_experts; ++e) {
      int n = places[e];
      for (int k = 0; k < n; k += p.tile_rows) {
        Ints(p.tiles).at[3 * n_tiles] = e;
        Ints(p.tiles).at[3 * n_tiles + 1] = begin + k;
        Ints(p.tiles).at[3 * n_tiles + 2] = min(p.tile_rows, n - k);
        ++n_tiles;
      }
      places[e] = begin;
      begin += n;
    }
    Ints(p.n_tiles).at[0] = n_tiles;
  }
  barrier();
  for (int i = thread_id(); i < n_pairs; i += kThreads) Ints(p.order).at[atomicAdd(places[Ints(p.ids).at[i]], 1)] = i;
}
