// The interface between emulated kernels and the emulator: thread indices, barriers, dependent launches, async copies.
#pragma once

extern "C" {
struct EmulatedIndex {
  unsigned x, y, z;
};
struct EmulatedThreadIndex {
  EmulatedIndex thread, block, grid, size;
  int rank;  // of the block in its cluster
};
extern EmulatedThreadIndex emulated_index;  // of the running thread

[[noreturn]] void emulated_fail(const char* why);  // aborts; the message names the kernel

void emulated_launch_dependents();
void emulated_wait_dependency();

void emulated_yield();  // for polling loops
void emulated_sync_block();
void emulated_named_barrier_sync(int id, int n_threads);
void emulated_sync_warp();
// Gives the words to the other lanes of the warp and returns those of all lanes, valid until the caller's next barrier.
struct EmulatedWords {
  unsigned words[6];
};
const EmulatedWords* emulated_exchange(const EmulatedWords& words);
void emulated_cluster_arrive();
void emulated_cluster_wait();
void* emulated_map_to_rank(void* at, int rank);  // `at` in the shared memory of that block

// cp.async of a thread, in commit groups; a group completes in a wait, no sooner.
void emulated_cp_async(void* to, const void* from, int n_bytes);
void emulated_cp_async_commit();
void emulated_cp_async_wait(int n_left);
// Copies that report to an mbarrier; emulated_complete_tx completes them and returns their bytes.
void emulated_bulk_copy(void* to, const void* from, int n_bytes, const void* mbarrier);
void emulated_store_async(void* to, unsigned word, const void* mbarrier);
int emulated_complete_tx(const void* mbarrier);

// wgmma of a thread, in commit groups too. compute: called with a copy of `of`.
void emulated_wgmma(void (*compute)(const void* of), const void* of, int n_bytes);
void emulated_wgmma_commit();
void emulated_wgmma_wait(int n_left);
}
