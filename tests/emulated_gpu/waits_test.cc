// What the emulated GPU makes of kernels that wait too little: kernels of a few lines, with and without their waits.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "tests/emulated_gpu/launches.h"
#include "tests/emulated_gpu/order.h"
#include "tests/emulated_gpu/work.h"

#define __CUDA_ARCH__ 900
#include <builtins.h>
#include <instructions.h>

namespace zinc::emulated {
namespace {

using namespace simt;

// Of the device; each case begins with zeros.
struct alignas(16) Memory {
  std::array<int, 4> source;
  int first, second, third;
} memory;

int* shared_ints() { return reinterpret_cast<int*>(emulated_shared); }
constexpr unsigned kSharedBytes = 1024;
constexpr int kNonsense = static_cast<int>(0xEEEEEEEE);

KernelLaunch launch_of(Kernel kernel, bool starts_early) {
  static std::map<Kernel, std::vector<KernelImage>> images;
  images[kernel] = {{kernel, emulated_shared, emulated_shared}};
  return {.facts = {.kernel = "of_the_test",
                    .grid = {2, 1, 1},
                    .n_threads = 64,
                    .shared_bytes = kSharedBytes,
                    .starts_early = starts_early},
          .images = &images[kernel],
          .cluster = 1,
          .params = {}};
}

// One after the other; all but the first may start early.
void run(std::initializer_list<Kernel> kernels) {
  memory = {};
  std::vector<KernelLaunch> launches;
  for (const Kernel kernel : kernels) launches.push_back(launch_of(kernel, !launches.empty()));
  run_launches(launches);
}
bool is_first_thread() { return threadIdx.x == 0 && blockIdx.x == 0; }

// ---- launches ----

void writes_first(Params) {
  let_next_start();
  wait_for_previous();
  memory.first = 1;
}
void reads_first(Params) {
  let_next_start();
  wait_for_previous();
  memory.second = memory.first;
}
void reads_before_and_behind_its_wait(Params) {
  let_next_start();
  memory.second = memory.first;
  wait_for_previous();
  memory.third = memory.first;
}
void writes_before_its_wait(Params) {
  memory.first = 5;
  wait_for_previous();
}
void starts_next_at_once(Params) {
  let_next_start();
  wait_for_previous();
}
void starts_next_late(Params) {
  wait_for_previous();
  let_next_start();
  memory.first += is_first_thread() ? 1 : 0;
}
void never_waits(Params) {}

TEST(EmulatedLaunches, what_is_read_before_the_wait_is_what_was_there_before) {
  run({writes_first, reads_before_and_behind_its_wait});
  EXPECT_EQ(memory.second, 0);
  EXPECT_EQ(memory.third, 1);
}

TEST(EmulatedLaunches, what_is_written_before_the_wait_is_read_by_the_launch_before) {
  run({reads_first, writes_before_its_wait});
  EXPECT_EQ(memory.second, 5);
}

TEST(EmulatedLaunches, launches_that_start_the_next_at_once_let_it_overtake_those_before) {
  run({writes_first, starts_next_at_once, reads_before_and_behind_its_wait});
  EXPECT_EQ(memory.second, 0);
  EXPECT_EQ(memory.third, 1);
}

TEST(EmulatedLaunches, what_came_before_a_launch_that_starts_the_next_late_is_there_and_what_it_writes_is_not) {
  run({writes_first, starts_next_late, reads_before_and_behind_its_wait});
  EXPECT_EQ(memory.second, 1);
  EXPECT_EQ(memory.third, 2);
}

TEST(EmulatedLaunches, a_launch_that_nobody_waits_for_the_others_in_is_refused) {
  EXPECT_DEATH(run({writes_first, never_waits}), "of_the_test does not wait for the launch before");
}

// ---- copies ----

void copies(Params) {
  if (!is_first_thread()) return;
  memory.source = {3, 3, 3, 3};
  copy_16(shared_ints(), &memory.source);
  end_copies();
  memory.first = *shared_ints();
  await_copies<1>();
  memory.second = *shared_ints();
  await_copies<0>();
  memory.third = *shared_ints();
}
void awaits_no_set(Params) {
  copy_16(shared_ints(), &memory.source);
  await_copies<0>();
  memory.first = *shared_ints();
}
void changes_the_source(Params) {
  copy_16(shared_ints(), &memory.source);
  end_copies();
  memory.source[1] = 1;
  await_copies<0>();
}
void changes_the_destination(Params) {
  copy_16(shared_ints(), &memory.source);
  end_copies();
  shared_ints()[1] = 0;
  await_copies<0>();
}
template <bool waits>
void copies_in_bulk(Params) {
  if (!is_first_thread()) return;
  memory.source = {3, 3, 3, 3};
  Gate* gate = reinterpret_cast<Gate*>(shared_ints() + 4);
  open_gate(gate);
  copy_bulk(shared_ints(), &memory.source, 16, gate);
  memory.first = *shared_ints();
  if (waits) wait_at(gate, 0);
  memory.second = *shared_ints();
}

TEST(EmulatedCopies, nothing_is_there_before_its_set_is_awaited) {
  run({copies});
  EXPECT_EQ(memory.first, kNonsense);
  EXPECT_EQ(memory.second, kNonsense);
  EXPECT_EQ(memory.third, 3);
}

TEST(EmulatedLaunches, nobody_writes_behind_the_shared_memory_that_was_asked_for) {
  const auto writes = [](Params) { emulated_shared[kSharedBytes - 1] = 1; };
  const auto writes_behind = [](Params) { emulated_shared[kSharedBytes] = 1; };
  run({writes});
  EXPECT_DEATH(run({writes_behind}), "of_the_test writes behind its shared memory");
}

TEST(EmulatedCopies, what_is_in_no_set_is_not_awaited) {
  run({awaits_no_set});
  EXPECT_EQ(memory.first, kNonsense);
}

TEST(EmulatedCopies, nobody_may_write_to_their_ends_meanwhile) {
  EXPECT_DEATH(run({changes_the_source}), "of_the_test copies what is written meanwhile");
  EXPECT_DEATH(run({changes_the_destination}), "of_the_test writes where a copy is under way to");
}

TEST(EmulatedCopies, a_gate_is_waited_at_before_its_bytes_are_there_and_before_the_block_ends) {
  run({copies_in_bulk<true>});
  EXPECT_EQ(memory.first, kNonsense);
  EXPECT_EQ(memory.second, 3);
  EXPECT_DEATH(run({copies_in_bulk<false>}), "of_the_test ends while copies to its memory are under way");
}

TEST(EmulatedCopies, a_gate_is_open_before_anything_reports_to_it) {
  const auto opens_none = [](Params) {
    copy_bulk(shared_ints(), &memory.source, 16, reinterpret_cast<Gate*>(shared_ints() + 4));
  };
  EXPECT_DEATH(run({opens_none}), "of_the_test reports to a gate that is not open yet");
}

TEST(EmulatedProducts, a_product_is_made_of_what_is_there_when_it_is_awaited) {
  run({[](Params) {
    if (!is_first_thread()) return;
    emulated_begin_product([](const void*) { memory.first = memory.second; }, &memory, 0);
    emulated_end_products();
    memory.second = 1;
    emulated_await_products(1);
    memory.third = memory.first;
    emulated_await_products(0);
  }});
  EXPECT_EQ(memory.third, 0);
  EXPECT_EQ(memory.first, 1);
}

// ---- threads ----

// How many threads see what another one of their block left in shared memory.
template <bool meets>
void exchanges(Params) {
  const unsigned i = threadIdx.x;
  shared_ints()[i] = 1;
  if (meets) __syncthreads();
  if (blockIdx.x == 0 && shared_ints()[blockDim.x - 1 - i] == 1) atomicAdd(&memory.first, 1);
}
// Blocks leave who was last.
void numbers_blocks(Params) { memory.first = static_cast<int>(blockIdx.x); }

const Memory& memory_after(const std::string& order, Kernel kernel) {
  const Order before = std::exchange(Order::of_process(), Order(order));
  run({kernel});
  Order::of_process() = before;
  return memory;
}

TEST(EmulatedThreads, without_a_barrier_results_depend_on_the_order_of_turns) {
  for (const char* order : {"forward", "backward", "1", "2"}) {
    EXPECT_LT(memory_after(order, exchanges<false>).first, 64) << order;
    EXPECT_EQ(memory_after(order, exchanges<true>).first, 64) << order;
  }
}

TEST(EmulatedThreads, blocks_take_turns_in_the_same_order) {
  EXPECT_EQ(memory_after("forward", numbers_blocks).first, 1);
  EXPECT_EQ(memory_after("backward", numbers_blocks).first, 0);
}

TEST(EmulatedThreads, a_warp_goes_on_until_it_waits_for_another) {
  const auto looks_ahead = [](Params) {
    for (int i = 0; i < 3; ++i) __syncwarp();
    if (threadIdx.x == 0) memory.second = shared_ints()[0];
    if (threadIdx.x >= 32) shared_ints()[0] = 1;
  };
  EXPECT_EQ(memory_after("forward", looks_ahead).second, kNonsense);
  EXPECT_EQ(memory_after("backward", looks_ahead).second, 1);
}

TEST(EmulatedThreads, an_order_that_is_none_is_refused) { EXPECT_DEATH(Order("sideways"), "not 'sideways'"); }

// ---- the host ----

TEST(EmulatedWork, is_done_in_order_when_the_host_waits_and_no_sooner) {
  Work work;
  std::string done;
  for (const char* name : {"a", "b", "c"}) work.add([&done, name] { done += name; });
  EXPECT_EQ(done, "");
  work.wait_for_first(2);
  EXPECT_EQ(done, "ab");
  work.wait();
  EXPECT_EQ(done, "abc");
  work.wait_for_first(1);
  EXPECT_EQ(done, "abc");
}

}  // namespace
}  // namespace zinc::emulated
