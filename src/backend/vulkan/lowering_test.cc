// The passes over the dispatches of a program.
#include "backend/vulkan/lowering.h"

#include <gtest/gtest.h>

#include <cstring>

namespace zinc::vulkan {
namespace {

Dispatch dispatch(std::vector<MemoryRange> reads, std::vector<MemoryRange> writes) {
  Dispatch d;
  d.reads = std::move(reads);
  d.writes = std::move(writes);
  return d;
}

std::vector<bool> barriers_of(const std::vector<Dispatch>& dispatches) {
  std::vector<bool> out;
  for (const Dispatch& d : dispatches) out.push_back(d.needs_barrier);
  return out;
}

TEST(VulkanBarriers, separate_dispatches_whose_accesses_conflict) {
  const MemoryRange a{0, 100}, b{100, 100}, c{200, 100}, a_and_b{50, 100};
  std::vector<Dispatch> dispatches = {
      dispatch({c}, {a}),       dispatch({c}, {b}),  // independent of the first
      dispatch({a}, {c}),                            // reads what the first wrote; writes what both read
      dispatch({a}, {}),                             // two reads do not conflict
      dispatch({}, {a_and_b}),                       // writes a part of what was read
      dispatch({}, {b}),                             // writes what was written
      dispatch({{300, 8}}, {}),                      // elsewhere
  };
  insert_barriers(dispatches);
  EXPECT_EQ(barriers_of(dispatches), (std::vector<bool>{false, false, true, false, true, true, false}));
}

// Three batches of one, two and one dispatches.
Program chain(int arrivals_of_last) {
  Program program;
  for (const int n_arrivals : {4, 2, 3, arrivals_of_last}) {
    Dispatch d;
    d.params_offset = static_cast<uint32_t>(program.params.size());
    d.n_arrivals = n_arrivals;
    program.dispatches.push_back(d);
    program.params.resize(program.params.size() + 64);
  }
  program.dispatches[1].needs_barrier = program.dispatches[3].needs_barrier = true;
  return program;
}

CounterSync sync_of(const Program& program, size_t i) {
  CounterSync sync;
  std::memcpy(&sync, program.params.data() + program.dispatches[i].params_offset, sizeof(sync));
  return sync;
}

TEST(VulkanCounters, replace_barriers_between_batches_that_all_count_their_workgroups) {
  constexpr Address kCounters = 4096;
  Program program = chain(1);
  replace_barriers_by_counters(program, kCounters);
  EXPECT_EQ(barriers_of(program.dispatches), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(sync_of(program, 0).producer_counter, 0u);
  EXPECT_EQ(sync_of(program, 1).producer_counter, kCounters);
  EXPECT_EQ(sync_of(program, 1).n_producers, 4);
  EXPECT_EQ(sync_of(program, 2).own_counter, kCounters + kCounterBytes);
  EXPECT_EQ(sync_of(program, 3).n_producers, 2 + 3) << "both dispatches of the batch before";
}

TEST(VulkanCounters, keep_the_barrier_before_a_dispatch_that_cannot_wait) {
  Program program = chain(0);
  replace_barriers_by_counters(program, 4096);
  EXPECT_EQ(barriers_of(program.dispatches), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(sync_of(program, 3).own_counter, 0u) << "its parameters have no CounterSync";
}

}  // namespace
}  // namespace zinc::vulkan
