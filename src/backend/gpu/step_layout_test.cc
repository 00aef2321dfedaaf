// The cost of fused calls, and a model's weights without a GPU.
#include "backend/gpu/step_layout.h"

#include <gtest/gtest.h>

#include "backend/gpu/kernel_table.h"
#include "graph/graph_builder.h"
#include "tests/support/weight_set.h"

namespace zinc::gpu {
namespace {

constexpr int64_t kDim = 256;
constexpr double kRowBytes = kDim * sizeof(float), kMatrixBytes = kDim * kDim * 2.0;

constexpr KvFormat kKvFormats[] = {{"f16", 64}};

TEST(CallCost, counts_weights_per_launch_and_activations_that_leave_the_kernel) {
  WeightSet set;
  set.add("table", {kDim, kDim}, k_f16).add("norm", {kDim});
  for (const char* name : {"gate", "up", "down"}) set.add(name, {kDim, kDim}, k_f16);
  GraphBuilder g("cost", set.source());
  const auto matrix = [&](const char* name) { return g.weight(name, {kDim, kDim}); };
  const Value x = g.embed(matrix("table")), h = g.rms_norm(x, g.weight("norm", {kDim}), 1e-6f);
  const Value act = g.gated_act(Act::silu, g.linear(h, matrix("gate")), g.linear(h, matrix("up")));
  const Value out = g.add(x, g.linear(act, matrix("down")));
  g.logits(g.linear(g.rows(out), matrix("table")));
  const Graph graph = std::move(g.finish().value());

  const BatchShape step;
  const auto layout = std::move(StepLayout::make(graph, step, {.backend = "test", .kv_formats = kKvFormats}).value());
  const GraphUses uses(graph, false);
  const KernelLimits limits{.max_warp_head_dim = 256,
                            .max_matmul_parts = 4,
                            .max_launch_parts = 4,
                            .max_inline_q8_rows = 8,
                            .max_experts_used = 8,
                            .max_experts = 64};
  const std::vector<FusedCall> calls = fuse(graph, uses, *layout->weights, limits, StepClass{}, false);
  ASSERT_EQ(calls.size(), 5u) << "embed, gate and up, down, the output matrix, sample";
  const GraphCost nodes = cost_graph(graph, step, {});
  const auto cost = [&](size_t i) { return call_cost(calls[i], graph, uses, nodes); };
  EXPECT_EQ(cost(1).weight_bytes, 2 * kMatrixBytes + kRowBytes) << "and the norm's weights";
  EXPECT_EQ(cost(1).activation_read_bytes, kRowBytes) << "x; the normed row stays inside";
  EXPECT_EQ(cost(1).activation_written_bytes, kRowBytes) << "the gated activation";
  EXPECT_EQ(cost(2).activation_read_bytes, 2 * kRowBytes) << "the activation and the residual";
  EXPECT_EQ(cost(2).activation_written_bytes, kRowBytes);
  EXPECT_EQ(cost(3).weight_bytes, kMatrixBytes);
}

TEST(StepLayout, weights_of_a_format_without_kernels_are_dequantized_as_the_backend_does) {
  WeightSet set;
  set.add("table", {kDim, kDim}, *find_format("q8_0"));
  GraphBuilder g("formats", set.source());
  const Value table = g.weight("table", {kDim, kDim});
  g.logits(g.linear(g.rows(g.embed(table)), table));
  const Graph graph = std::move(g.finish().value());
  const auto format_of = [&](const KernelFormats& formats) {
    return StepLayout::make(graph, BatchShape{}, formats).value()->weights->matrix("table")->format->name;
  };
  KernelFormats formats{.backend = "test", .kv_formats = kKvFormats};
  EXPECT_EQ(format_of(formats), "q8_0");
  formats.has_panels = [](std::string_view format) { return format != "q8_0"; };
  EXPECT_EQ(format_of(formats), "f16");
}

}  // namespace
}  // namespace zinc::gpu
