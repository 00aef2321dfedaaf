// The passes over the dispatches of a program.
#include "backend/vulkan/lowering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/gpu/plan_memory.h"
#include "backend/gpu/step_layout.h"
#include "graph/graph_builder.h"
#include "tests/support/weight_set.h"

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

TEST(VulkanBarriers, are_fewer_if_dispatches_are_ordered_by_depth) {
  const MemoryRange x{0, 100}, a{100, 100}, b{200, 100}, normed_a{300, 100}, normed_b{400, 100};
  std::vector<Dispatch> dispatches = {
      dispatch({}, {x}),                    // 0
      dispatch({x}, {a}),                   // 1
      dispatch({a}, {normed_a}),            // 2
      dispatch({x}, {b}),                   // 1
      dispatch({b}, {normed_b}),            // 2
      dispatch({normed_a, normed_b}, {x}),  // 3
      dispatch({}, {a}),                    // 3: what was read at 2
      dispatch({{1000, 4}}, {{1000, 4}}),   // 0
  };
  for (size_t i = 0; i < dispatches.size(); ++i) dispatches[i].params_offset = static_cast<uint32_t>(i);
  order_by_depth(dispatches);
  insert_barriers(dispatches);
  std::vector<uint32_t> order;
  for (const Dispatch& d : dispatches) order.push_back(d.params_offset);
  EXPECT_EQ(order, (std::vector<uint32_t>{0, 7, 1, 3, 2, 4, 5, 6}));
  EXPECT_EQ(barriers_of(dispatches), (std::vector<bool>{false, false, true, false, true, false, true, false}));
}

// Three batches of one, two and one dispatches.
Program chain(int arrivals_of_last, bool last_can_wait) {
  Program program;
  for (const int n_arrivals : {4, 2, 3, arrivals_of_last}) {
    Dispatch d;
    d.params_offset = static_cast<uint32_t>(program.params.size());
    d.n_arrivals = n_arrivals;
    d.can_wait = true;
    program.dispatches.push_back(d);
    program.params.resize(program.params.size() + 64);
  }
  program.dispatches[3].can_wait = last_can_wait;
  program.dispatches[1].needs_barrier = program.dispatches[3].needs_barrier = true;
  return program;
}

constexpr Address kCounters = 4096;
Buffer counters() { return Buffer(nullptr, kCounters, nullptr, 3 * kCounterBytes); }

CounterSync sync_of(const Program& program, size_t i) {
  CounterSync sync;
  std::memcpy(&sync, program.params.data() + program.dispatches[i].params_offset, sizeof(sync));
  return sync;
}

TEST(VulkanCounters, replace_barriers_between_batches_that_all_count_their_workgroups) {
  Program program = chain(1, true);
  replace_barriers_by_counters(program, counters());
  EXPECT_EQ(barriers_of(program.dispatches), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(sync_of(program, 0).producer_counter, 0u);
  EXPECT_EQ(sync_of(program, 1).producer_counter, kCounters);
  EXPECT_EQ(sync_of(program, 1).n_producers, 4);
  EXPECT_EQ(sync_of(program, 2).own_counter, kCounters + kCounterBytes);
  EXPECT_EQ(sync_of(program, 3).n_producers, 2 + 3) << "both dispatches of the batch before";
}

TEST(VulkanCounters, keep_the_barrier_before_a_dispatch_that_cannot_wait) {
  Program program = chain(0, false);
  replace_barriers_by_counters(program, counters());
  EXPECT_EQ(barriers_of(program.dispatches), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(sync_of(program, 3).own_counter, 0u) << "its parameters have no CounterSync";
}

TEST(VulkanCounters, keep_the_barrier_before_a_dispatch_that_only_signals) {
  Program program = chain(7, false);
  replace_barriers_by_counters(program, counters());
  EXPECT_EQ(barriers_of(program.dispatches), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(sync_of(program, 3).n_producers, 0);
  EXPECT_EQ(sync_of(program, 3).own_counter, kCounters + 2 * kCounterBytes);
}

// A row that is too long for shared memory is quantized by a dispatch of its own and read through caches.
TEST(VulkanCounters, keep_the_barrier_before_a_matmul_of_one_quantized_row_in_memory) {
  constexpr int64_t kIn = kMaxQuantizedInputs + 512;
  WeightSet set;
  set.add("table", {8, kIn}, k_f16);
  set.add("matrix", {64, kIn}, *find_format("q6_k"));
  GraphBuilder g("long row", set.source());
  g.logits(g.linear(g.rows(g.embed(g.weight("table", {8, kIn}))), g.weight("matrix", {64, kIn})));
  const Graph graph = std::move(g.finish().value());
  const auto layout = std::move(gpu::StepLayout::make(graph, BatchShape{}, kernel_formats()).value());
  Capabilities nvidia;
  nvidia.vendor_id = 0x10DE;
  nvidia.shared_bytes = 48 << 10;
  const auto workspace = std::move(
      Workspace::allocate(graph, *layout->weights, *layout->cache, layout->device, nvidia, layout->bucket).value());
  const Program program = std::move(
      Lowering(graph, *layout->weights, *layout->cache, nvidia, /*starts_in_order=*/true, *workspace).run().value());
  const auto matmul =
      std::ranges::find(program.dispatches, "linear.q6_k", [](const Dispatch& d) { return d.kernel.module; });
  ASSERT_NE(matmul, program.dispatches.end());
  EXPECT_TRUE(matmul->needs_barrier);
}

// The step classes of a plan share their workspaces' memory. A counter's expected value is the number of steps of its
// class, so two classes that count in the same memory would wait for each other's workgroups.
TEST(VulkanCounters, of_two_step_classes_are_in_different_memory) {
  WeightSet set;
  set.add("table", {64, 64}, k_f16);
  GraphBuilder g("counters", set.source());
  const Value table = g.weight("table", {64, 64});
  g.logits(g.linear(g.rows(g.embed(table)), table));
  const Graph graph = std::move(g.finish().value());
  const auto layout = std::move(gpu::StepLayout::make(graph, BatchShape{}, kernel_formats()).value());
  Capabilities nvidia;
  nvidia.vendor_id = 0x10DE;
  for (const int max_seqs : {1, 2, 16}) {
    const Bucket bucket{.max_tokens = 128, .max_seqs = max_seqs, .max_outputs = 16};
    const auto memory = std::move(
        gpu::PlanMemory::allocate(
            graph, bucket, layout->device,
            [&](gpu::Device& device, const Bucket& sizes) -> Result<std::unique_ptr<gpu::Workspace>> {
              ZINC_TRY(workspace, Workspace::allocate(graph, *layout->weights, *layout->cache, device, nvidia, sizes));
              return std::unique_ptr<gpu::Workspace>(std::move(workspace));
            })
            .value());
    std::vector<MemoryRange> counters;
    for (size_t i = 0; i < memory->classes().size(); ++i) {
      const auto& workspace = static_cast<const Workspace&>(memory->workspace(i));
      const Program program = std::move(
          Lowering(graph, *layout->weights, *layout->cache, nvidia, /*starts_in_order=*/true, workspace).run().value());
      const bool counts = std::ranges::any_of(program.dispatches, [](const Dispatch& d) { return d.n_arrivals > 0; });
      EXPECT_EQ(counts, memory->classes()[i].max_tokens <= kMaxSmallRows) << "class " << i;
      EXPECT_EQ(workspace.sync_counters().size() > 0, counts) << "class " << i;
      if (counts) counters.push_back({workspace.sync_counters().address(), workspace.sync_counters().size()});
    }
    std::ranges::sort(counters, {}, &MemoryRange::begin);
    for (size_t i = 1; i < counters.size(); ++i) {
      EXPECT_LE(counters[i - 1].begin + counters[i - 1].n_bytes, counters[i].begin) << max_seqs << " sequences";
    }
  }
}

}  // namespace
}  // namespace zinc::vulkan
