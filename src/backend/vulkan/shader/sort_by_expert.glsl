// Sorts (row, expert) pairs by expert and cuts them into tiles, in one workgroup. The order within an expert does not matter: each
// pair is multiplied independently.
shared int expert_offsets[kMaxExperts];  // counts, then the next free index per expert
shared ivec2 thread_sums[kThreads];  // pairs and tiles of each thread's experts, then of all up to it

const int kThreadExperts = kMaxExperts / kThreads;

// Writes the tiles of the thread's experts, which begin at pair `at.x` and tile `at.y`.
void write_tiles(ExpertTileParams tiles, ivec2 at) {
  for (int i = 0; i < kThreadExperts; ++i) {
    int e = thread_id() * kThreadExperts + i, n = expert_offsets[e];
    for (int k = 0; k < n; k += tiles.tile_rows, ++at.y) {
      CoherentInts(tiles.tiles).data[3 * at.y] = e;
      CoherentInts(tiles.tiles).data[3 * at.y + 1] = at.x + k;
      CoherentInts(tiles.tiles).data[3 * at.y + 2] = min(tiles.tile_rows, n - k);
    }
    expert_offsets[e] = at.x;
    at.x += n;
  }
}

// REQUIRES: every thread of the workgroup calls.
void sort_by_expert(ExpertTileParams tiles, uint64_t ids, int n_pairs) {
  for (int e = thread_id(); e < kMaxExperts; e += kThreads) expert_offsets[e] = 0;
  barrier();
  for (int i = thread_id(); i < n_pairs; i += kThreads) atomicAdd(expert_offsets[CoherentInts(ids).data[i]], 1);
  barrier();
  ivec2 own = ivec2(0);
  for (int i = 0; i < kThreadExperts; ++i) {
    int n = expert_offsets[thread_id() * kThreadExperts + i];
    own += ivec2(n, (n + tiles.tile_rows - 1) / tiles.tile_rows);
  }
  thread_sums[thread_id()] = own;
  barrier();
  for (int distance = 1; distance < kThreads; distance *= 2) {
    ivec2 before = thread_id() >= distance ? thread_sums[thread_id() - distance] : ivec2(0);
    barrier();
    thread_sums[thread_id()] += before;
    barrier();
  }
  write_tiles(tiles, thread_sums[thread_id()] - own);
  if (thread_id() == 0) CoherentInts(tiles.n_tiles).data[0] = thread_sums[kThreads - 1].y;
  barrier();
  for (int i = thread_id(); i < n_pairs; i += kThreads) {
    CoherentInts(tiles.sorted_pairs).data[atomicAdd(expert_offsets[CoherentInts(ids).data[i]], 1)] = i;
  }
}
