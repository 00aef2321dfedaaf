#include "graph/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "graph/cost_table.h"
#include "graph/dependencies.h"
#include "tests/support/contains_all.h"
#include "tests/support/weight_set.h"

namespace zinc {
namespace {

// One or a few nodes between a hidden_in and the logits; cost() is of the node that produced `v`.
class CostTest : public testing::Test {
 protected:
  Value activation(const Shape& shape) { return g_.view(g_.hidden_in(shape.elems()), shape); }
  Value weight(const Shape& shape, const Format& format = k_f32) {
    const std::string name = fmt::format("w{}", n_weights_++);
    weights_.add(name, shape, format);
    return g_.weight(name, shape);
  }
  void finish(Value v) {
    g_.logits(g_.rows(g_.flatten(v)));
    Result<Graph> graph = g_.finish();
    ASSERT_TRUE(graph.ok()) << graph.error().message;
    graph_ = std::move(graph.value());
  }
  GraphCost cost_of_step(const BatchShape& step, const RooflinePeaks& device = {}) {
    return cost_graph(graph_, step, device);
  }
  Cost cost_of(Value v, const BatchShape& step) {
    const GraphCost cost = cost_of_step(step);
    for (size_t i = 0; i < cost.nodes.size(); ++i) {
      if (graph_.nodes()[i].out[0] == v || graph_.nodes()[i].out[1] == v) return cost.nodes[i].cost;
    }
    ADD_FAILURE() << "no node produces value " << v.id;
    return {};
  }

  WeightSet weights_;
  int n_weights_ = 0;
  GraphBuilder g_{"cost", weights_.source()};
  Graph graph_;
};

TEST_F(CostTest, embed_reads_one_row_per_token) {
  const Value x = g_.embed(weight({100, 64}, *find_format("q8_0")));
  finish(x);
  const Cost cost = cost_of(x, {.n_tokens = 3});
  EXPECT_EQ(cost.weight_bytes, 3 * 2 * 34);
  EXPECT_EQ(cost.activation_read_bytes, 0);
  EXPECT_EQ(cost.activation_written_bytes, 3 * 64 * 4);
  EXPECT_EQ(cost.flops, 0);
}

TEST_F(CostTest, linear_reads_its_weight_once_whatever_the_tokens) {
  const Value y = g_.linear(activation({8}), weight({4, 8}), weight({4}));
  finish(y);
  const Cost cost = cost_of(y, {.n_tokens = 3});
  EXPECT_EQ(cost.weight_bytes, 4 * 8 * 4 + 4 * 4);
  EXPECT_EQ(cost.activation_read_bytes, 3 * 8 * 4);
  EXPECT_EQ(cost.activation_written_bytes, 3 * 4 * 4);
  EXPECT_EQ(cost.flops, 3 * 4 * (2 * 8 + 1));
  EXPECT_EQ(cost.bytes(), 144 + 96 + 48);
  EXPECT_DOUBLE_EQ(cost.intensity(), 204.0 / 288.0);
}

TEST_F(CostTest, the_output_matrix_is_applied_to_one_row_per_sequence) {
  const Value logits = g_.linear(g_.rows(activation({8})), weight({50, 8}));
  g_.logits(logits);
  graph_ = std::move(g_.finish().value());
  EXPECT_EQ(cost_of(logits, {.n_tokens = 7, .n_seqs = 2}).flops, 2 * 50 * 16);
}

TEST_F(CostTest, rope_counts_only_the_rotated_pairs) {
  const Value y = g_.rope(activation({4, 8}), {.n_dims = 6});
  finish(y);
  EXPECT_EQ(cost_of(y, {.n_tokens = 2}).flops, 2 * 4 * 3 * 6);
}

TEST_F(CostTest, attention_counts_cache_rows_and_pairs) {
  const Value y = g_.attention({activation({2, 4}), activation({1, 4}), activation({1, 4})}, {});
  finish(y);
  const double position = 2 * 4 * 2;  // keys and values, 4 elements of f16
  Cost cost = cost_of(y, {.n_tokens = 3, .depth = 2});
  EXPECT_EQ(cost.cache_written_bytes, 3 * position);
  EXPECT_EQ(cost.cache_read_bytes, 5 * position);
  EXPECT_EQ(cost.flops, 2 * (3 + 4 + 5) * (2 * (4 + 4) + 1 + 4));
  cost = cost_of(y, {.n_tokens = 3, .n_seqs = 2, .depth = 2});  // sequences of two and one tokens
  EXPECT_EQ(cost.cache_read_bytes, (4 + 3) * position);
  EXPECT_EQ(cost.flops, 2 * (3 + 4 + 3) * 21);
}

TEST_F(CostTest, a_window_bounds_what_attention_reads_at_every_depth) {
  const int64_t window = 5;
  const Value y = g_.attention({activation({1, 4}), activation({1, 4}), activation({1, 4})}, {.window = window});
  finish(y);
  for (int64_t depth = 0; depth < 12; ++depth) {
    for (int64_t n = 1; n < 12; ++n) {
      std::vector<bool> seen(static_cast<size_t>(depth + n));
      double n_pairs = 0;
      for (int64_t query = depth; query < depth + n; ++query) {
        for (int64_t p = std::max<int64_t>(0, query - window + 1); p <= query; ++p) {
          seen[static_cast<size_t>(p)] = true;
          ++n_pairs;
        }
      }
      const Cost cost = cost_of(y, {.n_tokens = n, .depth = depth});
      ASSERT_EQ(cost.flops, n_pairs * 21) << depth << " " << n;
      ASSERT_EQ(cost.cache_read_bytes, static_cast<double>(std::ranges::count(seen, true)) * 16) << depth << " " << n;
    }
  }
}

TEST_F(CostTest, attention_to_another_layers_cache_writes_nothing) {
  g_.attention({activation({1, 4}), activation({1, 4}), activation({1, 4})}, {.cache_layer = 0});
  const Value y = g_.attention({activation({1, 4}), {}, {}}, {.cache_layer = 0});
  finish(y);
  const Cost cost = cost_of(y, {.n_tokens = 1, .depth = 9});
  EXPECT_EQ(cost.cache_written_bytes, 0);
  EXPECT_EQ(cost.cache_read_bytes, 10 * 16);
}

TEST_F(CostTest, experts_are_counted_as_often_as_they_are_expected_to_be_used) {
  const auto [ids, route] = g_.moe_route(activation({4}), {.n_used = 2});
  const Value y = g_.moe_linear(activation({8}), {weight({4, 5, 8}), weight({4, 5}), weight({4})}, ids);
  finish(g_.moe_combine(y, route));
  const double expert_bytes = 4 * (5 * 8 + 5 + 1);
  EXPECT_DOUBLE_EQ(cost_of(y, {.n_tokens = 1}).weight_bytes, 2 * expert_bytes);
  EXPECT_DOUBLE_EQ(cost_of(y, {.n_tokens = 2}).weight_bytes, 3 * expert_bytes);
  EXPECT_NEAR(cost_of(y, {.n_tokens = 100}).weight_bytes, 4 * expert_bytes, 1e-9);
  EXPECT_EQ(cost_of(y, {.n_tokens = 2}).flops, 2 * 2 * 5 * (2 * 8 + 2));
}

TEST(ExpectedExperts, matches_a_count_over_every_possible_choice) {
  // 4 experts, 2 of them per token, 2 tokens: all 6 x 6 choices.
  const std::vector<unsigned> pairs = {0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100};
  double sum = 0;
  for (const unsigned a : pairs) {
    for (const unsigned b : pairs) sum += std::popcount(a | b);
  }
  EXPECT_DOUBLE_EQ(expected_experts(4, 2, 2), sum / 36);
  EXPECT_DOUBLE_EQ(expected_experts(256, 8, 1), 8);
  EXPECT_DOUBLE_EQ(expected_experts(8, 8, 5), 8);
}

TEST_F(CostTest, recurrent_states_are_written_once_per_sequence_and_read_where_there_is_one) {
  const Value conv = g_.short_conv(activation({6}), weight({6, 4}), {.cache_layer = 0});
  const Value delta = g_.delta_net({activation({2, 8}), activation({2, 8}), activation({4, 3}), activation({4}),
                                    activation({4}), weight({4}), weight({4})},
                                   {.cache_layer = 0});
  finish(delta);
  Cost cost = cost_of(conv, {.n_tokens = 4, .n_seqs = 2, .depth = 10});
  EXPECT_EQ(cost.cache_read_bytes, 2 * 18 * 4);
  EXPECT_EQ(cost.cache_written_bytes, 2 * 18 * 4);
  EXPECT_EQ(cost.flops, 4 * 6 * (2 * 4 + 5));
  cost = cost_of(delta, {.n_tokens = 4, .n_seqs = 2, .depth = 0});
  EXPECT_EQ(cost.cache_read_bytes, 0);
  EXPECT_EQ(cost.cache_written_bytes, 2 * 4 * 8 * 3 * 4);
  EXPECT_EQ(cost.flops, 4 * 7 * (4 * 8 * 3));
}

TEST_F(CostTest, views_cost_nothing_and_slices_read_only_their_part) {
  const Value x = g_.hidden_in(16);
  const Value view = g_.heads(x, 2), part = g_.slice(view, 0, 3);
  finish(part);
  EXPECT_EQ(cost_of(view, {}).bytes(), 0);
  EXPECT_EQ(cost_of(part, {}).activation_read_bytes, 2 * 3 * 4);
  EXPECT_EQ(cost_of(part, {}).activation_written_bytes, 2 * 3 * 4);
}

TEST_F(CostTest, the_roofline_takes_the_slower_of_memory_and_arithmetic) {
  finish(g_.linear(activation({8}), weight({4, 8})));
  const auto node_of = [&](const RooflinePeaks& device) {
    const GraphCost cost = cost_of_step({.n_tokens = 2}, device);
    for (size_t i = 0; i < cost.nodes.size(); ++i) {
      if (graph_.nodes()[i].op == Op::linear) return cost.nodes[i];
    }
    return NodeCost{};
  };
  const double bytes = 128 + 64 + 32, flops = 2 * 4 * 16;
  NodeCost node = node_of({.bytes_per_s = 10, .flops_per_s = 1e6});
  EXPECT_EQ(node.bottleneck, Bottleneck::memory);
  EXPECT_DOUBLE_EQ(node.time_s, bytes / 10);
  node = node_of({.bytes_per_s = 1e6, .flops_per_s = 10});
  EXPECT_EQ(node.bottleneck, Bottleneck::compute);
  EXPECT_DOUBLE_EQ(node.time_s, flops / 10);
}

TEST_F(CostTest, sums_per_op_and_per_layer_and_the_total_agree) {
  Value x = activation({8});
  for (int l = 0; l < 3; ++l) {
    g_.layer(l);
    x = g_.add(x, g_.linear(x, weight({8, 8})));
  }
  g_.end_layers();
  finish(x);
  const GraphCost cost = cost_of_step({.n_tokens = 2});
  const std::vector<CostSum> layers = sum_by_layer(graph_, cost);
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[1].n_nodes, 2);
  EXPECT_EQ(layers[1].cost.weight_bytes, 256);
  EXPECT_EQ(layers[0].cost.weight_bytes, 0);
  const auto ops = sum_by_op(graph_, cost);
  EXPECT_EQ(ops[static_cast<size_t>(Op::linear)].n_nodes, 3);
  double layer_bytes = 0, op_bytes = 0, op_time_s = 0;
  for (const CostSum& sum : layers) layer_bytes += sum.cost.bytes();
  for (const CostSum& sum : ops) op_bytes += sum.cost.bytes();
  for (const CostSum& sum : ops) op_time_s += sum.time_s;
  EXPECT_DOUBLE_EQ(layer_bytes, cost.total.bytes());
  EXPECT_DOUBLE_EQ(op_bytes, cost.total.bytes());
  EXPECT_DOUBLE_EQ(op_time_s, cost.time_s);
  EXPECT_EQ(resident_weight_bytes(graph_), 3u * 256);
}

TEST_F(CostTest, the_bound_leaves_activations_on_the_chip) {
  finish(g_.linear(activation({8}), weight({4, 8})));
  const GraphCost cost = cost_of_step({.n_tokens = 2}, {.bytes_per_s = 128, .flops_per_s = 1e9});
  EXPECT_DOUBLE_EQ(cost.tokens_per_s_bound(), 2.0);  // the 128 bytes of weights take one second
  EXPECT_LT(cost.tokens_per_s(), cost.tokens_per_s_bound());
}

// x -> a (slow) -> sum; x -> b -> c (both fast) -> sum
TEST_F(CostTest, the_critical_path_follows_the_slow_branch_and_depth_the_long_one) {
  const Value x = g_.hidden_in(64);
  const Value a = g_.linear(x, weight({64, 64}));
  const Value b = g_.scale(x, 2), c = g_.scale(b, 3);
  const Value sum = g_.add(a, c);
  finish(sum);
  const GraphCost cost = cost_of_step({});
  std::vector<int> path;
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const Value out = graph_.nodes()[i].out[0];
    if (out != b && out != c) path.push_back(static_cast<int>(i));
  }
  EXPECT_EQ(cost.critical_path, path);
  double time_s = 0;
  for (int i : path) time_s += cost.nodes[static_cast<size_t>(i)].time_s;
  EXPECT_DOUBLE_EQ(cost.critical_time_s, time_s);
  EXPECT_EQ(cost.depths, (std::vector<int>{1, 2, 2, 3, 4, 5, 6}));
}

TEST_F(CostTest, reading_another_layers_cache_is_an_edge) {
  const Value writer = g_.attention({activation({1, 4}), activation({1, 4}), activation({1, 4})}, {});
  const Value reader = g_.attention({activation({1, 4}), {}, {}}, {});
  finish(g_.add(reader, writer));
  bool found = false;
  for (const Edge& edge : edges_of(graph_)) {
    EXPECT_LT(edge.from, edge.to);
    if (edge.value) continue;
    found = true;
    EXPECT_EQ(graph_.nodes()[static_cast<size_t>(edge.from)].out[0], writer);
    EXPECT_EQ(graph_.nodes()[static_cast<size_t>(edge.to)].out[0], reader);
  }
  EXPECT_TRUE(found);
}

TEST_F(CostTest, the_table_shows_sums_cache_bytes_and_the_bound) {
  g_.layer(0);
  Value x = activation({8});
  g_.attention({g_.heads(x, 2), g_.heads(x, 2), g_.heads(x, 2)}, {.window = 4});
  g_.layer(1);
  x = g_.attention({g_.heads(x, 2), g_.heads(x, 2), g_.heads(x, 2)}, {.cache_layer = 1});
  g_.short_conv(x, weight({8, 4}), {.cache_layer = 1});
  x = g_.linear(x, weight({8, 8}));
  g_.end_layers();
  finish(x);
  const std::string table = cost_table(graph_, cost_of_step({.n_tokens = 1, .depth = 3}));
  EXPECT_TRUE(contains_all(
      table, {"attention", "linear", "outside", "total", "weights in the graph         384 bytes",
              "KV cache per token           64 bytes (f16)", "all positions              32 bytes, 1 layers",
              "window 4                   32 bytes, 1 layers", "recurrent state per sequence 96 bytes",
              "tokens/s, upper bound"}));
}

TEST(HumanAmount, is_exact_below_a_thousand_and_short_above) {
  EXPECT_EQ(human_amount(999, "B"), "999 B");
  EXPECT_EQ(human_amount(1500, "B"), "1.50 kB");
  EXPECT_EQ(human_amount(2.5e9, ""), "2.50 G");
}

}  // namespace
}  // namespace zinc
