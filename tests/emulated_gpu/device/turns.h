// What emulated kernels ask of the emulator: who they are, to wait for other threads and launches, and copies that run
// beside them.
#pragma once

extern "C" {
struct EmulatedIndex {
  unsigned x, y, z;
};
struct EmulatedPlace {
  EmulatedIndex thread, block, grid, size;
  int rank;  // of the block in its cluster
};
extern EmulatedPlace emulated_place;  // of the thread whose turn it is

[[noreturn]] void emulated_refuse(const char* why);  // ends the process; the message names the kernel

void emulated_let_next_start();
void emulated_wait_for_previous();

void emulated_yield();       // others may go on; who waits for them calls this until it sees what it waits for
void emulated_ask_others();  // likewise, who waits for a block that may be of another cluster
void emulated_meet_block();
void emulated_meet_some(int id, int n_threads);
void emulated_meet_warp();
unsigned emulated_exchange(unsigned word, int lane);  // what that lane of the warp gave
void emulated_cluster_arrives();
void emulated_wait_for_cluster();
void* emulated_at_rank(void* at, int rank);  // where `at` lies in that block's memory

// A thread's own copies, in sets; their bytes are there once all but the last n_left sets are awaited, no sooner.
void emulated_begin_copy(void* to, const void* from, int n_bytes);
void emulated_end_copies();
void emulated_await_copies(int n_left);
// Those that report to a gate; bytes are there when it receives them, which is how many it returns.
void emulated_begin_reported_copy(void* to, const void* from, int n_bytes, const void* gate);
void emulated_begin_reported_store(void* to, unsigned word, const void* gate);
int emulated_receive(const void* gate);

// Matrix products of a thread's own, likewise in sets. compute: called with a copy of `of`.
void emulated_begin_product(void (*compute)(const void* of), const void* of, int n_bytes);
void emulated_end_products();
void emulated_await_products(int n_left);
}
