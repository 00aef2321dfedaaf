#include "graph/graph_export.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <set>

#include "graph/dependencies.h"
#include "tests/support/contains_all.h"
#include "tests/support/dot_checks.h"
#include "tests/support/test_files.h"
#include "tests/support/weight_set.h"

namespace zinc {
namespace {

// Every op of the list in one graph.
Graph graph_of_every_op(WeightSet& weights) {
  weights.add("table", {10, 8}, *find_format("f16")).add("w", {8, 8}).add("b", {8}).add("one", {1}).add("conv", {8, 4});
  weights.add("experts", {4, 8, 8}).add("router", {4, 8}).add("gate", {2}).add("gates", {2, 8}).add("sinks", {2});
  GraphBuilder g("every", weights.source());
  Value x = g.embed(g.weight("table", {10, 8}));
  x = g.add(x, g.hidden_in(8));
  g.layer(0);
  x = g.rms_norm(x, g.weight("b", {8}), 1e-6f);
  const Value heads = g.rope(g.heads(x, 2), {.n_dims = 4, .yarn = {.original_context = 128}});
  x = g.attention({heads, heads, heads, g.weight("sinks", {2})}, {.cache_layer = 0, .scale = 0.5f, .window = 8});
  x = g.linear(x, g.weight("w", {8, 8}), g.weight("b", {8}));
  g.layer(1);
  x = g.short_conv(x, g.weight("conv", {8, 4}), {.cache_layer = 1});
  const Value gates = g.linear(x, g.weight("gates", {2, 8}));
  const Value v = g.heads(x, 2);
  x = g.flatten(g.delta_net({v, v, v, gates, gates, g.weight("gate", {2}), g.weight("gate", {2})}, {.cache_layer = 1}));
  const auto [ids, route] = g.moe_route(g.linear(x, g.weight("router", {4, 8})), {.n_used = 2});
  x = g.moe_combine(g.moe_linear(x, {g.weight("experts", {4, 8, 8})}, ids), route);
  x = g.gated_act(Act::silu, x, g.mul(g.scale(x, 2), g.weight("one", {1})));
  x = g.concat(g.slice(x, 0, 4), g.slice(x, 4, 4));
  g.label(x, "l_out-1");
  g.layer(2);
  x = g.attention({g.heads(x, 2), {}, {}}, {.cache_layer = 0, .window = 8});
  g.end_layers();
  g.hidden(x);
  Value logits = g.softcap(g.linear(g.rows(x), g.weight("table", {10, 8})), 30);
  for (const Op op : kUnaryOps) logits = g.unary(op, logits);
  g.logits(logits);
  Result<Graph> graph = g.finish();
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return std::move(graph.value());
}

class GraphExport : public testing::Test {
 protected:
  json::value exported(std::string_view title = "every op") {
    const GraphCost cost = cost_graph(graph_, {.n_tokens = 3, .depth = 5}, {});
    Result<json::value> parsed = parse_json(to_pretty_json(graph_to_json(graph_, cost, title)));
    EXPECT_TRUE(parsed.ok()) << parsed.error().message;
    return parsed.value();
  }
  WeightSet weights_;
  Graph graph_ = graph_of_every_op(weights_);
};

TEST_F(GraphExport, json_has_every_node_with_inputs_outputs_params_and_costs) {
  const json::value report = exported();
  const json::array& nodes = report.at("nodes").as_array();
  ASSERT_EQ(nodes.size(), graph_.nodes().size());
  std::set<std::string> ops;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = graph_.nodes()[i];
    EXPECT_EQ(nodes[i].at("id").to_number<size_t>(), i);
    EXPECT_EQ(std::string_view(nodes[i].at("op").as_string()), op_name(node.op));
    EXPECT_EQ(nodes[i].at("layer").is_null(), node.layer < 0);
    EXPECT_EQ(nodes[i].at("outputs").at(0).at("value").to_number<int>(), node.out[0].id);
    for (const char* key : {"weight_bytes", "activation_read_bytes", "activation_written_bytes", "cache_read_bytes",
                            "cache_written_bytes", "bytes", "flops", "intensity", "time_s", "bottleneck"}) {
      EXPECT_TRUE(nodes[i].at("cost").as_object().contains(key)) << key;
    }
    const json::array& inputs = nodes[i].at("inputs").as_array();
    for (size_t k = 0; k < node.in.size(); ++k) {
      if (k >= inputs.size() || inputs[k].is_null()) {
        EXPECT_FALSE(bool(node.in[k])) << i << " " << k;
      } else {
        EXPECT_EQ(inputs[k].at("value").to_number<int>(), node.in[k].id);
      }
    }
    ops.insert(std::string(nodes[i].at("op").as_string()));
  }
  EXPECT_EQ(ops.size(), kOpCount) << "the test's graph should contain every op";
  EXPECT_EQ(report.at("op_counts").as_object().size(), kOpCount);
}

TEST_F(GraphExport, json_names_each_weight_with_format_shape_and_bytes) {
  const json::value report = exported();
  const json::value& table = report.at("nodes").at(0).at("inputs").at(0);
  EXPECT_EQ(table.at("name").as_string(), "table");
  EXPECT_EQ(table.at("format").as_string(), "f16");
  EXPECT_EQ(table.at("bytes").to_number<int>(), 160);
  EXPECT_EQ(table.at("shape"), json::parse("[10,8]"));
  EXPECT_TRUE(table.at("weight").as_bool());
}

TEST_F(GraphExport, json_shows_the_params_of_each_op) {
  std::map<std::string, json::value> params;
  const json::value report = exported();
  for (const json::value& node : report.at("nodes").as_array()) {
    params.emplace(std::string(node.at("op").as_string()), node.at("params"));  // the first of each op
  }
  EXPECT_EQ(params["norm"].at("kind").as_string(), "rms");
  EXPECT_EQ(params["rope"].at("yarn").at("original_context").to_number<int>(), 128);
  EXPECT_EQ(params["attention"].at("window").to_number<int>(), 8);
  EXPECT_EQ(params["moe_route"].at("weights").as_string(), "softmax_normalized");
  EXPECT_EQ(params["gated_act"].at("act").as_string(), "silu");
  EXPECT_EQ(params["delta_net"].at("sharing").as_string(), "grouped");
  EXPECT_EQ(params["scale"].at("factor").to_number<double>(), 2);
  EXPECT_EQ(params["softcap"].at("cap").to_number<double>(), 30);
}

TEST_F(GraphExport, json_edges_are_those_of_the_graph) {
  const json::value report = exported();
  const std::vector<Edge> edges = edges_of(graph_);
  ASSERT_EQ(report.at("edges").as_array().size(), edges.size());
  size_t n_cache_edges = 0;
  for (size_t i = 0; i < edges.size(); ++i) {
    EXPECT_EQ(report.at("edges").at(i).at("from").to_number<int>(), edges[i].from);
    EXPECT_EQ(report.at("edges").at(i).at("to").to_number<int>(), edges[i].to);
    if (report.at("edges").at(i).as_object().contains("cache")) ++n_cache_edges;
  }
  EXPECT_EQ(n_cache_edges, 1u);
}

TEST_F(GraphExport, json_sums_agree_with_the_nodes) {
  const json::value report = exported();
  double bytes = 0, layer_bytes = 0, op_bytes = 0;
  int n_nodes = 0;
  for (const json::value& node : report.at("nodes").as_array()) {
    bytes += node.at("cost").at("bytes").to_number<double>();
  }
  for (const json::value& layer : report.at("by_layer").as_array()) {
    layer_bytes += layer.at("bytes").to_number<double>();
    n_nodes += layer.at("n_nodes").to_number<int>();
  }
  for (const auto& op : report.at("by_op").as_object()) op_bytes += op.value().at("bytes").to_number<double>();
  EXPECT_NEAR(report.at("totals").at("bytes").to_number<double>(), bytes, 1e-6);
  EXPECT_NEAR(layer_bytes, bytes, 1e-6);
  EXPECT_NEAR(op_bytes, bytes, 1e-6);
  EXPECT_EQ(n_nodes, static_cast<int>(graph_.nodes().size()));
  int n_in_widths = 0;
  for (const json::value& width : report.at("depth").at("widths").as_array()) n_in_widths += width.to_number<int>();
  EXPECT_EQ(n_in_widths, n_nodes);
  EXPECT_EQ(report.at("by_layer").as_array().size(), 4u);
}

TEST_F(GraphExport, json_hotspots_are_sorted_and_bounded) {
  const json::value report = exported();
  const json::array& hotspots = report.at("hotspots").as_array();
  ASSERT_EQ(hotspots.size(), std::min(kHotspots, graph_.nodes().size()));
  for (size_t i = 1; i < hotspots.size(); ++i) {
    EXPECT_GE(hotspots[i - 1].at("time_s").to_number<double>(), hotspots[i].at("time_s").to_number<double>());
  }
}

TEST_F(GraphExport, json_gives_the_exact_memory_of_the_cache) {
  const json::value report = exported();
  const json::value& memory = report.at("memory");
  EXPECT_EQ(memory.at("kv_bytes_per_token").to_number<int>(), 2 * 2 * 4 * 2);
  EXPECT_EQ(memory.at("kv_groups").at(0).at("window").to_number<int>(), 8);
  EXPECT_EQ(memory.at("state_bytes_per_sequence").to_number<int>(), (8 * 3 + 2 * 4 * 4) * 4);
  EXPECT_EQ(memory.at("weight_bytes").to_number<size_t>(), resident_weight_bytes(graph_));
  EXPECT_GT(memory.at("activation_arena_bytes").to_number<int>(), 0);
}

TEST_F(GraphExport, json_survives_a_title_that_is_not_text) {
  EXPECT_EQ(exported("a\xff\"b").at("title").as_string(), "a\xEF\xBF\xBD\"b");
}

TEST_F(GraphExport, dot_declares_every_node_once_and_draws_every_edge_between_declared_ones) {
  for (const bool with_weights : {false, true}) {
    const std::string dot = graph_to_dot(graph_, "every \"op\" \\ \n", {.weights = with_weights});
    const DotSummary summary = read_dot(dot);
    EXPECT_EQ(summary.error, "");
    size_t n_drawn = 0, n_weights = 0;
    for (const Node& node : graph_.nodes()) {
      if (node.op != Op::view) ++n_drawn;
      for (Value v : node.in) {
        if (v && graph_.info(v).is_weight()) ++n_weights;
      }
    }
    // delta_net reads one weight twice: one box
    EXPECT_EQ(summary.nodes.size(), n_drawn + (with_weights ? n_weights - 1 : 0));
    EXPECT_EQ(summary.n_clusters, 3);
    EXPECT_TRUE(contains_all(dot, {"layer 2", "l_out-1", "style=dashed"}));
    EXPECT_EQ(dot.find("table") != std::string::npos, with_weights);
  }
}

TEST_F(GraphExport, graphviz_draws_the_dot_where_it_is_installed) {
  if (std::system("dot -V > /dev/null 2>&1") != 0) GTEST_SKIP() << "Graphviz is not installed: structure only";
  const TestFolder folder;
  const std::string path = put(folder / "graph.dot", graph_to_dot(graph_, "every op", {.weights = true}));
  EXPECT_EQ(std::system(("dot -Tsvg " + path + " > /dev/null").c_str()), 0);
}

TEST(DotChecks, find_what_is_wrong) {
  EXPECT_NE(read_dot("digraph \"a {\n}\n").error, "");
  EXPECT_NE(read_dot("digraph \"a\" {\n  n0 [label=\"x\"];\n  n0 -> n1;\n}\n").error, "");
  EXPECT_NE(read_dot("digraph \"a\" {\n  n0 [label=\"x\"];\n").error, "");
  EXPECT_EQ(read_dot("digraph \"a\" {\n  n0 [label=\"x\"];\n}\n").error, "");
}

}  // namespace
}  // namespace zinc
