#include "graph/output_tail.h"

#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "tests/support/weight_set.h"

namespace zinc {
namespace {

// One layer of gated attention and a matmul as its FFN, then the head. The gate is computed before the attention.
TEST(OutputTail, begins_after_the_last_attention_and_reads_its_result_the_gate_and_the_residual) {
  WeightSet weights;
  GraphBuilder g("test", weights.source());
  const auto weight = [&](const std::string& name) {
    weights.add(name, {8, 8});
    return g.weight(name, {8, 8});
  };
  const Value x = g.embed(weight("table"));
  g.layer(0);
  const Value q = g.heads(g.linear(x, weight("q")), 2), k = g.heads(g.linear(x, weight("k")), 2);
  const Value gate = g.linear(x, weight("gate"));
  const Value attention = g.attention({q, k, k}, {.cache_layer = 0});
  const Value mixed = g.linear(g.gated_act(Act::sigmoid, gate, attention), weight("out"));
  Value y = g.add(x, mixed);
  y = g.add(y, g.linear(y, weight("ffn")));
  g.end_layers();
  y = g.rms_norm(y, {}, 0);
  g.hidden(y);
  g.logits(g.linear(g.rows(y), weight("head")));
  const Graph graph = std::move(g.finish().value());

  const OutputTail tail = output_tail(graph);
  EXPECT_EQ(graph.nodes()[tail.begin - 1].op, Op::attention);
  EXPECT_EQ(tail.inputs, (std::vector<Value>{gate, attention, x}));
}

}  // namespace
}  // namespace zinc
