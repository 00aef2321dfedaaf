#include "graph/memory_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/support/memory_plan_checks.h"
#include "tests/support/weight_set.h"

namespace zinc {
namespace {

constexpr int kTokens = 5, kOutputs = 2;

// A graph of random elementwise nodes over random earlier values, with views, rows and a route that has two outputs.
Graph random_graph(uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const WeightSet weights;
  GraphBuilder g("random", weights.source());
  std::vector<Value> values = {g.hidden_in(static_cast<int64_t>(4 * (1 + below(20))))};
  for (int i = 0; i < 60; ++i) {
    const Value x = values[below(values.size())];
    switch (below(6)) {
      case 0:
        values.push_back(g.scale(x, 2));
        break;
      case 1:
        values.push_back(g.add(x, x));
        break;
      case 2:
        values.push_back(g.heads(x, below(2) ? 2 : 4));  // a view: shares x's memory
        break;
      case 3:
        values.push_back(g.hidden_in(static_cast<int64_t>(4 * (1 + below(40)))));
        break;
      case 4:
        values.push_back(g.moe_route(g.flatten(x), {.n_used = 1 + static_cast<int64_t>(below(4))}).weights);
        values.back() = g.concat(g.concat(values.back(), values.back()), g.concat(values.back(), values.back()));
        break;
      case 5:
        values.push_back(g.flatten(x));
        break;
    }
  }
  g.hidden(values[below(values.size())]);
  g.logits(g.rows(g.flatten(values.back())));
  Result<Graph> graph = g.finish();
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return std::move(graph.value());
}

Graph chain(int n_nodes, int64_t width) {
  const WeightSet weights;
  GraphBuilder g("chain", weights.source());
  Value x = g.hidden_in(width);
  for (int i = 0; i < n_nodes; ++i) x = g.scale(x, 2);
  g.logits(g.rows(x));
  return std::move(g.finish().value());
}

TEST(MemoryPlan, no_two_live_values_overlap_in_random_graphs) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Graph graph = random_graph(seed);
    const MemoryPlan plan = plan_memory(graph, kTokens, kOutputs, /*keep_all=*/false);
    ASSERT_EQ(overlap_of_live_values(graph, plan, {kTokens, kOutputs}), "") << "seed " << seed;
  }
}

TEST(MemoryPlan, the_overlap_check_finds_a_wrong_plan) {
  const Graph graph = chain(3, 64);
  MemoryPlan plan = plan_memory(graph, kTokens, kOutputs, /*keep_all=*/false);
  std::ranges::fill(plan.offsets, size_t{0});
  EXPECT_NE(overlap_of_live_values(graph, plan, {kTokens, kOutputs}), "");
}

TEST(MemoryPlan, the_arena_of_a_long_chain_is_two_values_wide) {
  const MemoryPlan plan = plan_memory(chain(100, 64), kTokens, kOutputs, /*keep_all=*/false);
  EXPECT_EQ(plan.n_elems, size_t{2 * kTokens * 64});
}

TEST(MemoryPlan, keep_all_gives_every_value_its_own_memory) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const Graph graph = random_graph(seed);
    const MemoryPlan plan = plan_memory(graph, kTokens, kOutputs, /*keep_all=*/true);
    ASSERT_EQ(overlap_of_any_values(graph, plan, {kTokens, kOutputs}), "") << "seed " << seed;
  }
}

TEST(MemoryPlan, a_view_shares_its_inputs_memory_and_keeps_it_alive) {
  const WeightSet weights;
  GraphBuilder g("view", weights.source());
  const Value x = g.hidden_in(64);
  const Value view = g.heads(x, 4), view_of_view = g.view(view, {2, 32});
  const Value other = g.scale(g.hidden_in(64), 2);  // must not reuse x's memory: the views are still read
  const Value sum = g.add(g.flatten(view_of_view), other);
  g.logits(g.rows(sum));
  const Graph graph = std::move(g.finish().value());
  const MemoryPlan plan = plan_memory(graph, kTokens, kOutputs, /*keep_all=*/false);
  const auto offset = [&](Value v) { return plan.offsets[static_cast<size_t>(v.id)]; };
  EXPECT_EQ(offset(view), offset(x));
  EXPECT_EQ(offset(view_of_view), offset(x));
  EXPECT_NE(offset(other), offset(x));
  EXPECT_EQ(overlap_of_live_values(graph, plan, {kTokens, kOutputs}), "");
}

TEST(MemoryPlan, logits_and_hidden_states_live_to_the_end) {
  const WeightSet weights;
  GraphBuilder g("ends", weights.source());
  const Value hidden = g.hidden_in(64);
  g.hidden(hidden);
  Value x = hidden;
  for (int i = 0; i < 10; ++i) x = g.scale(x, 2);
  g.logits(g.rows(x));
  const Graph graph = std::move(g.finish().value());
  const MemoryPlan plan = plan_memory(graph, kTokens, kOutputs, /*keep_all=*/false);
  for (const Node& node : graph.nodes()) {
    if (node.out[0] == hidden) continue;
    EXPECT_NE(plan.offsets[static_cast<size_t>(node.out[0].id)], plan.offsets[static_cast<size_t>(hidden.id)]);
  }
}

}  // namespace
}  // namespace zinc
