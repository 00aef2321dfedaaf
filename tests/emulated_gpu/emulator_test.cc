// The emulator detects missing synchronization: kernels of a few lines, with and without their waits.
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "tests/emulated_gpu/device_queue.h"
#include "tests/emulated_gpu/launches.h"
#include "tests/emulated_gpu/order.h"

#define __CUDA_ARCH__ 900
#include <builtins.h>
#include <ptx.h>

namespace zinc::emulated {
namespace {

using namespace simt;

// Device memory; zeroed before each case.
struct alignas(16) Memory {
  std::array<int, 4> source;
  int first, second, third;
} memory;

int* shared_ints() { return reinterpret_cast<int*>(emulated_shared); }
constexpr unsigned kSharedBytes = 1024;
constexpr int kPoison = static_cast<int>(0xEEEEEEEE);

KernelLaunch launch_of(Kernel kernel, bool is_dependent_launch) {
  static std::map<Kernel, std::vector<KernelImage>> images;
  images[kernel] = {{kernel, emulated_shared, emulated_shared}};
  return {.info = {.kernel = "of_the_test",
                   .grid = {2, 1, 1},
                   .n_threads = 64,
                   .shared_bytes = kSharedBytes,
                   .is_dependent_launch = is_dependent_launch},
          .images = &images[kernel],
          .cluster = 1,
          .params = {}};
}

// In order; all but the first are dependent launches.
void run(std::initializer_list<Kernel> kernels) {
  memory = {};
  std::vector<KernelLaunch> launches;
  for (const Kernel kernel : kernels) launches.push_back(launch_of(kernel, !launches.empty()));
  run_launches(launches);
}
bool is_first_thread() { return threadIdx.x == 0 && blockIdx.x == 0; }

// ---- launches ----

void writes_first(Params) {
  launch_dependents();
  wait_dependency();
  memory.first = 1;
}
void reads_first(Params) {
  launch_dependents();
  wait_dependency();
  memory.second = memory.first;
}
void reads_before_and_after_its_wait(Params) {
  launch_dependents();
  memory.second = memory.first;
  wait_dependency();
  memory.third = memory.first;
}
void writes_before_its_wait(Params) {
  memory.first = 5;
  wait_dependency();
}
void launches_dependents_at_once(Params) {
  launch_dependents();
  wait_dependency();
}
void launches_dependents_after_wait(Params) {
  wait_dependency();
  launch_dependents();
  memory.first += is_first_thread() ? 1 : 0;
}
void never_waits(Params) {}

TEST(EmulatedLaunches, reads_before_the_wait_see_the_state_before_the_previous_launch) {
  run({writes_first, reads_before_and_after_its_wait});
  EXPECT_EQ(memory.second, 0);
  EXPECT_EQ(memory.third, 1);
}

TEST(EmulatedLaunches, writes_before_the_wait_are_seen_by_the_previous_launch) {
  run({reads_first, writes_before_its_wait});
  EXPECT_EQ(memory.second, 5);
}

TEST(EmulatedLaunches, immediate_launch_dependents_lets_the_next_launch_overtake_earlier_ones) {
  run({writes_first, launches_dependents_at_once, reads_before_and_after_its_wait});
  EXPECT_EQ(memory.second, 0);
  EXPECT_EQ(memory.third, 1);
}

TEST(EmulatedLaunches, late_launch_dependents_publishes_earlier_launches_but_not_its_own_writes) {
  run({writes_first, launches_dependents_after_wait, reads_before_and_after_its_wait});
  EXPECT_EQ(memory.second, 1);
  EXPECT_EQ(memory.third, 2);
}

TEST(EmulatedLaunches, dependent_launch_that_never_waits_is_an_error) {
  EXPECT_DEATH(run({writes_first, never_waits}), "of_the_test does not call wait_dependency");
}

// ---- copies ----

void copies(Params) {
  if (!is_first_thread()) return;
  memory.source = {3, 3, 3, 3};
  cp_async_16(shared_ints(), &memory.source);
  cp_async_commit();
  memory.first = *shared_ints();
  cp_async_wait<1>();
  memory.second = *shared_ints();
  cp_async_wait<0>();
  memory.third = *shared_ints();
}
void waits_without_commit(Params) {
  cp_async_16(shared_ints(), &memory.source);
  cp_async_wait<0>();
  memory.first = *shared_ints();
}
void changes_the_source(Params) {
  cp_async_16(shared_ints(), &memory.source);
  cp_async_commit();
  memory.source[1] = 1;
  cp_async_wait<0>();
}
void changes_the_destination(Params) {
  cp_async_16(shared_ints(), &memory.source);
  cp_async_commit();
  shared_ints()[1] = 0;
  cp_async_wait<0>();
}
template <bool waits>
void copies_in_bulk(Params) {
  if (!is_first_thread()) return;
  memory.source = {3, 3, 3, 3};
  Mbarrier* mbarrier = reinterpret_cast<Mbarrier*>(shared_ints() + 4);
  mbarrier_init(mbarrier);
  bulk_copy_expect_tx(shared_ints(), &memory.source, 16, mbarrier);
  memory.first = *shared_ints();
  if (waits) mbarrier_wait(mbarrier, 0);
  memory.second = *shared_ints();
}

TEST(EmulatedCopies, bytes_arrive_only_when_their_group_is_waited_for) {
  run({copies});
  EXPECT_EQ(memory.first, kPoison);
  EXPECT_EQ(memory.second, kPoison);
  EXPECT_EQ(memory.third, 3);
}

TEST(EmulatedLaunches, writing_past_the_dynamic_shared_memory_is_an_error) {
  const auto writes = [](Params) { emulated_shared[kSharedBytes - 1] = 1; };
  const auto writes_behind = [](Params) { emulated_shared[kSharedBytes] = 1; };
  run({writes});
  EXPECT_DEATH(run({writes_behind}), "of_the_test writes past the end of its shared memory");
}

TEST(EmulatedCopies, uncommitted_copies_are_not_waited_for) {
  run({waits_without_commit});
  EXPECT_EQ(memory.first, kPoison);
}

TEST(EmulatedCopies, writing_to_source_or_destination_of_a_pending_copy_is_an_error) {
  EXPECT_DEATH(run({changes_the_source}), "of_the_test writes to the source of a pending copy");
  EXPECT_DEATH(run({changes_the_destination}), "of_the_test writes to the destination of a pending copy");
}

TEST(EmulatedCopies, bulk_copies_need_an_mbarrier_wait_before_use_and_before_exit) {
  run({copies_in_bulk<true>});
  EXPECT_EQ(memory.first, kPoison);
  EXPECT_EQ(memory.second, 3);
  EXPECT_DEATH(run({copies_in_bulk<false>}), "of_the_test exits with pending copies to its shared memory");
}

TEST(EmulatedCopies, mbarrier_must_be_initialized_before_use) {
  const auto skips_init = [](Params) {
    bulk_copy_expect_tx(shared_ints(), &memory.source, 16, reinterpret_cast<Mbarrier*>(shared_ints() + 4));
  };
  EXPECT_DEATH(run({skips_init}), "of_the_test uses an mbarrier before mbarrier_init");
}

TEST(EmulatedWgmma, operands_are_read_when_the_group_is_waited_for) {
  run({[](Params) {
    if (!is_first_thread()) return;
    emulated_wgmma([](const void*) { memory.first = memory.second; }, &memory, 0);
    emulated_wgmma_commit();
    memory.second = 1;
    emulated_wgmma_wait(1);
    memory.third = memory.first;
    emulated_wgmma_wait(0);
  }});
  EXPECT_EQ(memory.third, 0);
  EXPECT_EQ(memory.first, 1);
}

// ---- threads ----

// Counts threads that see another thread's store to shared memory.
template <bool syncs>
void exchanges(Params) {
  const unsigned i = threadIdx.x;
  shared_ints()[i] = 1;
  if (syncs) __syncthreads();
  if (blockIdx.x == 0 && shared_ints()[blockDim.x - 1 - i] == 1) atomicAdd(&memory.first, 1);
}
// The last block wins.
void numbers_blocks(Params) { memory.first = static_cast<int>(blockIdx.x); }

const Memory& memory_after(const std::string& order, Kernel kernel) {
  const Order before = std::exchange(Order::of_process(), Order(order));
  run({kernel});
  Order::of_process() = before;
  return memory;
}

TEST(EmulatedThreads, without_a_barrier_results_depend_on_the_scheduling_order) {
  for (const char* order : {"forward", "backward", "1", "2"}) {
    EXPECT_LT(memory_after(order, exchanges<false>).first, 64) << order;
    EXPECT_EQ(memory_after(order, exchanges<true>).first, 64) << order;
  }
}

TEST(EmulatedThreads, blocks_are_scheduled_in_the_same_order) {
  EXPECT_EQ(memory_after("forward", numbers_blocks).first, 1);
  EXPECT_EQ(memory_after("backward", numbers_blocks).first, 0);
}

TEST(EmulatedThreads, a_warp_runs_until_it_waits_for_another) {
  const auto looks_ahead = [](Params) {
    for (int i = 0; i < 3; ++i) __syncwarp();
    if (threadIdx.x == 0) memory.second = shared_ints()[0];
    if (threadIdx.x >= 32) shared_ints()[0] = 1;
  };
  EXPECT_EQ(memory_after("forward", looks_ahead).second, kPoison);
  EXPECT_EQ(memory_after("backward", looks_ahead).second, 1);
}

TEST(EmulatedThreads, an_unknown_order_is_an_error) { EXPECT_DEATH(Order("sideways"), "not 'sideways'"); }

// ---- the host ----

TEST(EmulatedDeviceQueue, runs_in_order_when_the_host_waits_and_no_sooner) {
  DeviceQueue queue;
  std::string done;
  for (const char* name : {"a", "b", "c"}) queue.add([&done, name] { done += name; });
  EXPECT_EQ(done, "");
  queue.wait_for(2);
  EXPECT_EQ(done, "ab");
  queue.wait();
  EXPECT_EQ(done, "abc");
  queue.wait_for(1);
  EXPECT_EQ(done, "abc");
}

}  // namespace
}  // namespace zinc::emulated
