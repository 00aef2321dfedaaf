#include "graph/graph_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/contains_all.h"
#include "tests/support/weight_set.h"

namespace zinc {
namespace {

// A builder with a few named weights and activations of any shape.
class GraphBuilderTest : public testing::Test {
 protected:
  Value activation(const Shape& shape) { return g_.view(g_.hidden_in(shape.elems()), shape); }  // [T, shape]
  Value weight(const std::string& name, const Shape& shape) {
    weights_.add(name, shape);
    return g_.weight(name, shape);
  }
  Value f32(const Shape& shape) { return weight(fmt::format("w{}", n_weights_++), shape); }

  const ValueInfo& info(const Graph& graph, Value v) { return graph.info(v); }
  Graph finish_with(Value v) {  // the whole graph, ended by any value as logits
    end(v);
    Result<Graph> graph = g_.finish();
    EXPECT_TRUE(graph.ok()) << graph.error().message;
    return graph.ok() ? std::move(graph.value()) : Graph();
  }
  void end(Value v) { g_.logits(g_.rows(g_.flatten(v))); }
  Shape shape_of(Value v) {
    const Graph graph = finish_with(v);
    return v ? graph.info(v).shape : Shape();
  }
  std::string error_of(Value v) {  // expected: one
    EXPECT_FALSE(bool(v));
    end(v);
    Result<Graph> graph = g_.finish();
    EXPECT_FALSE(graph.ok());
    return graph.ok() ? "" : graph.error().message;
  }

  WeightSet weights_;
  int n_weights_ = 0;
  GraphBuilder g_{"model.gguf", weights_.source()};
};

TEST_F(GraphBuilderTest, keeps_the_first_error_and_names_file_layer_and_op) {
  const Value x = activation({8});
  g_.layer(7);
  EXPECT_FALSE(bool(g_.softcap(x, -1)));
  g_.layer(9);
  EXPECT_FALSE(bool(g_.heads(x, 3)));
  EXPECT_FALSE(bool(g_.weight("absent", {1})));
  EXPECT_FALSE(bool(g_.scale(x, 2)));  // valid, but after an error nothing is built
  const Result<Graph> graph = g_.finish();
  ASSERT_FALSE(graph.ok());
  EXPECT_EQ(graph.error().code, ErrorCode::invalid_input);
  EXPECT_TRUE(contains_all(graph.error().message, {"model.gguf", "layer 7", "softcap", "positive"}));
}

TEST_F(GraphBuilderTest, an_error_outside_the_layers_says_so) {
  g_.layer(0);
  g_.end_layers();
  EXPECT_TRUE(contains_all(error_of(g_.embed(f32({4}))), {"outside the layers", "embed"}));
}

TEST_F(GraphBuilderTest, the_scalar_scale_of_a_matrix_multiplies_its_input) {
  weights_.add("up.scale", {1});
  const Graph graph = finish_with(g_.linear(activation({4}), weight("up.weight", {3, 4}), f32({3})));
  const auto linear =
      std::find_if(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) { return node.op == Op::linear; });
  ASSERT_NE(linear, graph.nodes().end());
  const Node& before = *(linear - 1);
  EXPECT_EQ(before.op, Op::mul);
  EXPECT_EQ(linear->in[0].id, before.out[0].id);
  EXPECT_EQ(graph.info(before.in[1]).name, "up.scale");
}

TEST_F(GraphBuilderTest, a_vector_beside_a_matrix_is_not_its_scale) {
  weights_.add("router.scale", {4});
  const Graph graph = finish_with(g_.linear(activation({4}), weight("router.weight", {3, 4})));
  EXPECT_TRUE(
      std::none_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) { return node.op == Op::mul; }));
}

TEST_F(GraphBuilderTest, an_error_given_by_the_caller_is_kept_like_its_own) {
  g_.fail_with(fail(ErrorCode::unsupported, "no such thing"));
  EXPECT_EQ(error_of(g_.scale(activation({1}), 1)), "no such thing");
}

TEST_F(GraphBuilderTest, a_graph_without_logits_is_rejected) {
  activation({4});
  const Result<Graph> graph = g_.finish();
  ASSERT_FALSE(graph.ok());
  EXPECT_TRUE(contains_all(graph.error().message, {"without logits"}));
}

TEST_F(GraphBuilderTest, a_layer_beyond_the_limit_is_rejected) {
  g_.layer(1024);
  EXPECT_TRUE(contains_all(error_of(activation({4})), {"layer 1024"}));
}

// ---- weights ----

TEST_F(GraphBuilderTest, a_missing_weight_is_named_with_the_shape_it_should_have) {
  const LayerWeights w = g_.layer(3);
  EXPECT_TRUE(
      contains_all(error_of(w("attn_q.weight", {4, 8})), {"model.gguf", "'blk.3.attn_q.weight'", "missing", "[4,8]"}));
}

TEST_F(GraphBuilderTest, a_misshapen_weight_is_named_with_both_shapes) {
  weights_.add("output.weight", {8, 4});
  EXPECT_TRUE(
      contains_all(error_of(g_.weight("output.weight", {4, 8})), {"'output.weight'", "is [8,4]", "expected [4,8]"}));
}

TEST_F(GraphBuilderTest, a_weight_asked_for_twice_is_one_value) {
  weights_.add("table", {4, 8});
  const Value a = g_.weight("table", {4, 8}), b = g_.weight("table", {4, 8});
  EXPECT_EQ(a, b);
  EXPECT_TRUE(bool(a));
}

TEST_F(GraphBuilderTest, a_weight_asked_for_again_in_another_shape_is_an_error) {
  weights_.add("table", {4, 8});
  EXPECT_TRUE(bool(g_.weight("table", {4, 8})));
  EXPECT_TRUE(contains_all(error_of(g_.weight("table", {8, 4})), {"is [4,8], expected [8,4]"}));
}

TEST_F(GraphBuilderTest, an_absent_optional_weight_is_none_and_no_error) {
  const LayerWeights w = g_.layer(0);
  EXPECT_FALSE(bool(w.optional("attn_q.bias", {4})));
  EXPECT_FALSE(w.has("attn_q.bias"));
  weights_.add("blk.0.attn_q.bias", {4});
  EXPECT_TRUE(w.has("attn_q.bias"));
  EXPECT_TRUE(bool(w.optional("attn_q.bias", {4})));
}

TEST_F(GraphBuilderTest, a_misshapen_optional_weight_is_an_error) {
  weights_.add("bias", {5});
  EXPECT_TRUE(contains_all(error_of(g_.optional_weight("bias", {4})), {"is [5]"}));
}

TEST_F(GraphBuilderTest, weight_or_takes_the_fallback_only_where_the_first_is_absent) {
  weights_.add("token_embd.weight", {4, 8});
  const Value tied = g_.weight_or("output.weight", "token_embd.weight", {4, 8});
  EXPECT_EQ(tied, g_.weight("token_embd.weight", {4, 8}));
  weights_.add("output.weight", {4, 8});
  EXPECT_NE(g_.weight_or("output.weight", "token_embd.weight", {4, 8}), tied);
}

// ---- shapes ----

TEST_F(GraphBuilderTest, embed_gives_the_row_of_a_matrix) { EXPECT_EQ(shape_of(g_.embed(f32({4, 6}))), Shape({6})); }

TEST_F(GraphBuilderTest, hidden_in_refuses_a_width_of_zero) { EXPECT_FALSE(error_of(g_.hidden_in(0)).empty()); }

TEST_F(GraphBuilderTest, linear_replaces_the_innermost_width) {
  EXPECT_EQ(shape_of(g_.linear(activation({3, 8}), f32({5, 8}), f32({5}))), Shape({3, 5}));
}

TEST_F(GraphBuilderTest, linear_refuses_other_widths) {
  EXPECT_TRUE(contains_all(error_of(g_.linear(activation({7}), f32({5, 8}))), {"linear"}));
}

TEST_F(GraphBuilderTest, linear_refuses_a_bias_of_another_width) {
  EXPECT_TRUE(contains_all(error_of(g_.linear(activation({8}), f32({5, 8}), f32({8}))), {"bias"}));
}

TEST_F(GraphBuilderTest, linear_refuses_a_weight_in_place_of_its_input) {
  EXPECT_TRUE(contains_all(error_of(g_.linear(f32({8}), f32({5, 8}))), {"activation"}));
}

TEST_F(GraphBuilderTest, linear_refuses_an_activation_in_place_of_its_weight) {
  EXPECT_TRUE(contains_all(error_of(g_.linear(activation({8}), activation({5, 8}))), {"must be a weight"}));
}

TEST_F(GraphBuilderTest, norms_keep_the_shape) {
  const Value x = activation({2, 8});
  EXPECT_EQ(shape_of(g_.l2_norm(g_.rms_norm(x, f32({8}), 1e-6f), 1e-6f)), Shape({2, 8}));
}

TEST_F(GraphBuilderTest, norm_refuses_a_weight_of_another_width) {
  EXPECT_TRUE(contains_all(error_of(g_.rms_norm(activation({2, 8}), f32({2}), 1e-6f)), {"norm"}));
}

TEST_F(GraphBuilderTest, rope_keeps_the_shape) {
  EXPECT_EQ(shape_of(g_.rope(activation({2, 8}), {.n_dims = 6}, f32({3}))), Shape({2, 8}));
}

TEST_F(GraphBuilderTest, rope_refuses_what_does_not_fit_the_heads) {
  for (const int64_t n_dims : {int64_t{0}, int64_t{5}, int64_t{10}, int64_t{-2}}) {
    GraphBuilder g("model.gguf", weights_.source());
    EXPECT_FALSE(bool(g.rope(g.view(g.hidden_in(16), {2, 8}), {.n_dims = n_dims}))) << n_dims;
  }
}

TEST_F(GraphBuilderTest, rope_refuses_bases_and_scales_that_are_not_positive) {
  for (const float bad : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    GraphBuilder a("model.gguf", weights_.source()), b("model.gguf", weights_.source());
    EXPECT_FALSE(bool(a.rope(a.view(a.hidden_in(16), {2, 8}), {.n_dims = 8, .theta = bad}))) << bad;
    EXPECT_FALSE(bool(b.rope(b.view(b.hidden_in(16), {2, 8}), {.n_dims = 8, .position_scale = bad}))) << bad;
  }
}

TEST_F(GraphBuilderTest, rope_refuses_factors_of_another_count) {
  EXPECT_TRUE(contains_all(error_of(g_.rope(activation({2, 8}), {.n_dims = 8}, f32({8}))), {"factor"}));
}

TEST_F(GraphBuilderTest, rope_refuses_rows_that_have_lost_their_positions) {
  EXPECT_TRUE(contains_all(error_of(g_.rope(g_.rows(activation({2, 8})), {.n_dims = 8})), {"every token"}));
}

TEST_F(GraphBuilderTest, attention_gives_heads_times_value_width_and_a_cache) {
  const Value a = g_.attention({activation({6, 8}), activation({2, 8}), activation({2, 4}), f32({6})},
                               {.cache_layer = 3, .window = 16});
  const Graph graph = finish_with(a);
  EXPECT_EQ(graph.info(a).shape, Shape({24}));
  ASSERT_EQ(graph.caches().size(), 4u);
  EXPECT_EQ(graph.caches()[3].attention, (AttentionCache{.kv_heads = 2, .k_dim = 8, .v_dim = 4, .window = 16}));
  EXPECT_EQ(graph.caches()[0], LayerCache{});
}

TEST_F(GraphBuilderTest, attention_without_keys_reads_the_cache_of_another_layer) {
  g_.attention({activation({4, 8}), activation({2, 8}), activation({2, 8})}, {.cache_layer = 0});
  EXPECT_EQ(shape_of(g_.attention({activation({2, 8}), {}, {}}, {.cache_layer = 0})), Shape({16}));
}

struct BadAttention {
  const char* why;
  Shape q, k, v;
  int64_t sinks;
  AttentionParams params;
};
class AttentionShapes : public GraphBuilderTest, public testing::WithParamInterface<BadAttention> {};

TEST_P(AttentionShapes, attention_refuses_what_does_not_fit) {
  const BadAttention& bad = GetParam();
  const GraphBuilder::AttentionInputs in{activation(bad.q), bad.k.n_dims() ? activation(bad.k) : Value{},
                                         bad.v.n_dims() ? activation(bad.v) : Value{},
                                         bad.sinks ? f32({bad.sinks}) : Value{}};
  EXPECT_TRUE(contains_all(error_of(g_.attention(in, bad.params)), {"attention", bad.why}));
}
INSTANTIATE_TEST_SUITE_P(All, AttentionShapes,
                         testing::Values(BadAttention{"split into heads", {32}, {2, 8}, {2, 8}, 0, {}},
                                         BadAttention{"given together", {4, 8}, {2, 8}, {}, 0, {}},
                                         BadAttention{"differ in heads", {4, 8}, {2, 8}, {4, 8}, 0, {}},
                                         BadAttention{"multiple of the key heads", {4, 8}, {3, 8}, {3, 8}, 0, {}},
                                         BadAttention{"head sizes differ", {4, 8}, {2, 4}, {2, 8}, 0, {}},
                                         BadAttention{"one sink per head", {4, 8}, {2, 8}, {2, 8}, 2, {}},
                                         BadAttention{"window", {4, 8}, {2, 8}, {2, 8}, 0, {.window = -1}},
                                         BadAttention{
                                             "window", {4, 8}, {2, 8}, {2, 8}, 0, {.window = int64_t{1} << 31}},
                                         BadAttention{"out of range", {4, 8}, {2, 8}, {2, 8}, 0, {.cache_layer = -1}},
                                         BadAttention{"out of range", {4, 8}, {2, 8}, {2, 8}, 0, {.cache_layer = 1024}},
                                         BadAttention{"has no cache", {4, 8}, {}, {}, 0, {.cache_layer = 2}}));

TEST_F(GraphBuilderTest, attention_refuses_a_shared_cache_with_another_window) {
  g_.attention({activation({4, 8}), activation({2, 8}), activation({2, 8})}, {.window = 16});
  EXPECT_TRUE(contains_all(error_of(g_.attention({activation({4, 8}), {}, {}}, {.window = 32})), {"different window"}));
}

TEST_F(GraphBuilderTest, two_nodes_cannot_write_one_cache_in_different_shapes) {
  g_.attention({activation({4, 8}), activation({2, 8}), activation({2, 8})}, {});
  EXPECT_TRUE(contains_all(error_of(g_.attention({activation({4, 8}), activation({4, 8}), activation({4, 8})}, {})),
                           {"different shapes"}));
}

TEST_F(GraphBuilderTest, gated_act_takes_a_gate_of_equal_or_single_width) {
  const Value up = activation({2, 8});
  EXPECT_TRUE(bool(g_.gated_act(Act::silu, activation({16}), up)));
  EXPECT_EQ(shape_of(g_.gated_act(Act::sigmoid, activation({1}), up)), Shape({2, 8}));
}

TEST_F(GraphBuilderTest, gated_act_refuses_other_widths) {
  EXPECT_TRUE(contains_all(error_of(g_.gated_act(Act::silu, activation({2}), activation({8}))), {"gated_act"}));
}

TEST_F(GraphBuilderTest, gated_act_refuses_operands_with_different_rows) {
  EXPECT_TRUE(contains_all(error_of(g_.gated_act(Act::silu, activation({8}), g_.rows(activation({8})))), {"rows"}));
}

TEST_F(GraphBuilderTest, moe_nodes_fit_each_other) {
  const auto [ids, weights] = g_.moe_route(activation({6}), {.n_used = 2});
  const Value up = g_.moe_linear(activation({8}), {f32({6, 5, 8}), f32({6, 5}), f32({6})}, ids);  // [T, 2, 5]
  const Value down = g_.moe_linear(up, {f32({6, 8, 5})}, ids);                                    // [T, 2, 8]
  const Value out = g_.moe_combine(down, weights);
  const Graph graph = finish_with(out);
  EXPECT_EQ(graph.info(ids).element, Element::i32);
  EXPECT_EQ(graph.info(up).shape, Shape({2, 5}));
  EXPECT_EQ(graph.info(down).shape, Shape({2, 8}));
  EXPECT_EQ(graph.info(out).shape, Shape({8}));
}

TEST_F(GraphBuilderTest, moe_route_refuses_more_experts_than_there_are_and_none) {
  for (const int64_t n_used : {int64_t{0}, int64_t{-1}, int64_t{7}}) {
    GraphBuilder g("model.gguf", weights_.source());
    EXPECT_FALSE(bool(g.moe_route(g.hidden_in(6), {.n_used = n_used}).ids)) << n_used;
  }
}

TEST_F(GraphBuilderTest, moe_linear_refuses_what_does_not_fit_the_experts) {
  struct Bad {
    Shape x;
    GraphBuilder::ExpertWeights experts;
  };
  const Value weight = f32({6, 5, 8}), flat_weight = f32({5, 8}), bias = f32({5}), scale = f32({5});
  for (const Bad& bad : {Bad{{7}, {weight}}, Bad{{3, 8}, {weight}}, Bad{{8}, {flat_weight}}, Bad{{8}, {weight, bias}},
                         Bad{{8}, {weight, {}, scale}}}) {
    GraphBuilder g = g_;
    const GraphBuilder::Route route = g.moe_route(g.hidden_in(6), {.n_used = 2});
    EXPECT_FALSE(bool(g.moe_linear(g.view(g.hidden_in(bad.x.elems()), bad.x), bad.experts, route.ids)));
  }
}

TEST_F(GraphBuilderTest, moe_linear_refuses_ids_that_are_not_integers) {
  EXPECT_TRUE(contains_all(error_of(g_.moe_linear(activation({8}), {f32({6, 5, 8})}, activation({2}))), {"ids"}));
}

TEST_F(GraphBuilderTest, moe_combine_refuses_weights_of_another_count) {
  EXPECT_TRUE(contains_all(error_of(g_.moe_combine(activation({2, 8}), activation({3}))), {"moe_combine"}));
}

TEST_F(GraphBuilderTest, short_conv_keeps_the_shape_and_makes_a_state) {
  const Value y = g_.short_conv(activation({6}), f32({6, 4}), {.cache_layer = 1});
  const Graph graph = finish_with(y);
  EXPECT_EQ(graph.info(y).shape, Shape({6}));
  EXPECT_EQ(graph.caches()[1].recurrent.conv_floats(), 18);
}

TEST_F(GraphBuilderTest, short_conv_refuses_other_channels) {
  EXPECT_TRUE(contains_all(error_of(g_.short_conv(activation({5}), f32({6, 4}), {})), {"short_conv"}));
}

TEST_F(GraphBuilderTest, delta_net_shares_a_layers_state_with_its_convolution) {
  g_.short_conv(activation({6}), f32({6, 4}), {.cache_layer = 0});
  const Value y = g_.delta_net({activation({2, 8}), activation({2, 8}), activation({4, 3}), activation({4}),
                                activation({4}), f32({4}), f32({4})},
                               {.cache_layer = 0});
  const Graph graph = finish_with(y);
  EXPECT_EQ(graph.info(y).shape, Shape({4, 3}));
  const RecurrentCache expected{.conv_channels = 6, .conv_taps = 4, .heads = 4, .k_dim = 8, .v_dim = 3};
  EXPECT_EQ(graph.caches()[0].recurrent, expected);
}

TEST_F(GraphBuilderTest, delta_net_refuses_value_heads_that_are_not_a_multiple) {
  EXPECT_TRUE(contains_all(error_of(g_.delta_net({activation({2, 8}), activation({2, 8}), activation({3, 3}),
                                                  activation({3}), activation({3}), f32({3}), f32({3})},
                                                 {})),
                           {"multiple"}));
}

TEST_F(GraphBuilderTest, delta_net_refuses_gates_of_another_count) {
  EXPECT_TRUE(contains_all(error_of(g_.delta_net({activation({2, 8}), activation({2, 8}), activation({4, 3}),
                                                  activation({4}), activation({2}), f32({4}), f32({4})},
                                                 {})),
                           {"per value head"}));
}

TEST_F(GraphBuilderTest, add_refuses_other_shapes) {
  EXPECT_TRUE(contains_all(error_of(g_.add(activation({2, 4}), activation({8}))), {"add"}));
}

TEST_F(GraphBuilderTest, add_refuses_other_rows) {
  EXPECT_TRUE(contains_all(error_of(g_.add(activation({8}), g_.rows(activation({8})))), {"rows"}));
}

TEST_F(GraphBuilderTest, mul_takes_a_weight_per_column_or_one_for_all) {
  const Value x = activation({2, 4});
  EXPECT_TRUE(bool(g_.mul(x, f32({4}))));
  EXPECT_EQ(shape_of(g_.mul(x, f32({1}))), Shape({2, 4}));
}

TEST_F(GraphBuilderTest, mul_refuses_a_weight_of_another_width) {
  EXPECT_TRUE(contains_all(error_of(g_.mul(activation({2, 4}), f32({8}))), {"mul"}));
}

TEST_F(GraphBuilderTest, views_keep_the_element_count) {
  const Value x = activation({12});
  EXPECT_EQ(g_.view(x, {12}), x);  // nothing to do
  EXPECT_EQ(shape_of(g_.heads(x, 3)), Shape({3, 4}));
}

TEST_F(GraphBuilderTest, view_refuses_another_element_count) {
  EXPECT_TRUE(contains_all(error_of(g_.view(activation({12}), {5})), {"view"}));
}

TEST_F(GraphBuilderTest, heads_that_do_not_divide_the_width_are_rejected) {
  EXPECT_TRUE(contains_all(error_of(g_.heads(activation({12}), 5)), {"multiple of the heads"}));
}

TEST_F(GraphBuilderTest, zero_heads_are_rejected) { EXPECT_FALSE(error_of(g_.heads(activation({12}), 0)).empty()); }

TEST_F(GraphBuilderTest, slice_takes_a_part_of_each_row) {
  const Value x = activation({2, 8});
  EXPECT_EQ(g_.slice(x, 0, 8), x);
  EXPECT_EQ(shape_of(g_.slice(x, 5, 3)), Shape({2, 3}));
}

TEST_F(GraphBuilderTest, slice_refuses_parts_outside_the_row) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  for (const auto& [begin, length] :
       {std::pair<int64_t, int64_t>{-1, 2}, {0, 0}, {0, 9}, {8, 1}, {1, kHuge}, {kHuge, 1}}) {
    GraphBuilder g("model.gguf", weights_.source());
    EXPECT_FALSE(bool(g.slice(g.hidden_in(8), begin, length))) << begin << " " << length;
  }
}

TEST_F(GraphBuilderTest, concat_joins_rows) {
  EXPECT_EQ(shape_of(g_.concat(activation({2, 3}), activation({2, 5}))), Shape({2, 8}));
}

TEST_F(GraphBuilderTest, concat_refuses_other_outer_shapes) {
  EXPECT_TRUE(contains_all(error_of(g_.concat(activation({2, 3}), activation({3, 3}))), {"concat"}));
}

TEST_F(GraphBuilderTest, rows_are_taken_once) {
  EXPECT_TRUE(contains_all(error_of(g_.rows(g_.rows(activation({4})))), {"every token"}));
}

TEST_F(GraphBuilderTest, logits_must_be_rows_of_outputs) {
  g_.logits(activation({4}));
  const Result<Graph> graph = g_.finish();
  ASSERT_FALSE(graph.ok());
  EXPECT_TRUE(contains_all(graph.error().message, {"sample"}));
}

TEST_F(GraphBuilderTest, the_graph_ends_with_a_sample_node_over_the_logits) {
  const Value x = activation({8});
  g_.hidden(x);
  g_.label(x, "result_norm");
  const Graph graph = finish_with(x);
  EXPECT_EQ(graph.nodes().back().op, Op::sample);
  EXPECT_EQ(graph.nodes().back().in[0], graph.logits());
  EXPECT_EQ(graph.info(graph.logits()).rows, Rows::outputs);
  EXPECT_EQ(graph.hidden(), x);
  EXPECT_EQ(graph.find("result_norm"), x);
  EXPECT_FALSE(bool(graph.find("absent")));
}

TEST(Op, every_op_has_a_name_of_its_own) {
  std::vector<std::string_view> names;
  for (size_t op = 0; op < kOpCount; ++op) names.push_back(op_name(static_cast<Op>(op)));
  EXPECT_EQ(op_name(Op::embed), "embed");
  EXPECT_EQ(op_name(Op::sample), "sample");
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
}

}  // namespace
}  // namespace zinc
