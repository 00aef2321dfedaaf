// The table of fused kernels, on small graphs: what becomes one call, in which order, and where rows are quantized.
#include "backend/gpu/kernel_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/gpu/layout_device.h"
#include "graph/graph_builder.h"
#include "tests/support/weight_set.h"

namespace zinc::gpu {
namespace {

constexpr int64_t kDim = 256;
constexpr StepClass kDecode{1, 1}, kPrefill{64, 1};

KernelLimits limits() {
  return {.max_warp_head_dim = 256,
          .max_matmul_parts = 4,
          .max_launch_parts = 4,
          .max_inline_q8_rows = 8,
          .max_experts_used = 8,
          .max_experts = 64};
}

struct Name {
  std::string operator()(const EmbedCall&) const { return "embed"; }
  std::string operator()(const NormCall& c) const { return c.out.q8 ? "norm to q8" : "norm"; }
  std::string operator()(const QuantizeCall&) const { return "quantize"; }
  std::string operator()(const GatedActCall&) const { return "gated_act"; }
  std::string operator()(const GatedActPairCall&) const { return "two gated_acts"; }
  std::string operator()(const ElementwiseCall& c) const { return std::string(op_name(c.node->op)); }
  std::string operator()(const CopyCall&) const { return "copy"; }
  std::string operator()(const SampleCall&) const { return "sample"; }
  std::string operator()(const AttentionCall& c) const { return c.inputs ? "attention with inputs" : "attention"; }
  std::string operator()(const AttentionDecodeCall& c) const { return c.act ? "decode with gate" : "decode"; }
  std::string operator()(const NormResidualCall& c) const {
    return !c.next_norm ? "norm_residual" : c.normed.q8 ? "norm_residual with norm to q8" : "norm_residual with norm";
  }
  std::string operator()(const MatmulCall& c) const {
    std::string text = "matmul " + std::to_string(c.parts.size());
    if (c.residual) text += " after residual";
    if (c.norm) text += " after norm";
    if (c.q8) text += " of q8";
    if (c.route) text += " that routes";
    if (c.act) text += " with act";
    if (c.add) text += " with add";
    return text;
  }
  std::string operator()(const MoeDownCall& c) const { return c.add ? "moe_down with add" : "moe_down"; }
  std::string operator()(const RouteCall&) const { return "route"; }
  std::string operator()(const CombineCall& c) const {
    std::string text = "combine";
    if (c.shared_add) text += " with shared expert";
    if (c.add) text += " with add";
    if (c.norm) text += c.normed.q8 ? " with norm to q8" : " with norm";
    return text;
  }
  std::string operator()(const auto&) const { return "other"; }
};

class KernelTable : public testing::Test {
 protected:
  KernelTable() : g_("table", set_.source()) {}

  Value matrix(const std::string& name, int64_t n_out, int64_t n_in, const Format& format) {
    set_.add(name, {n_out, n_in}, format);
    return g_.weight(name, {n_out, n_in});
  }
  Value q8(const std::string& name, int64_t n_out = kDim, int64_t n_in = kDim) {
    return matrix(name, n_out, n_in, *find_format("q8_0"));
  }
  Value f16(const std::string& name, int64_t n_out = kDim, int64_t n_in = kDim) {
    return matrix(name, n_out, n_in, k_f16);
  }
  Value experts(const std::string& name, const char* format = "q8_0") {
    set_.add(name, {8, kDim, kDim}, *find_format(format));
    return g_.weight(name, {8, kDim, kDim});
  }
  // Two of eight experts, with a norm before them and the residual add after them.
  Value moe(Value x) {
    const Value h = norm(x, "norm");
    const GraphBuilder::Route route = g_.moe_route(g_.linear(h, f16("router", 8)), {.n_used = 2});
    const Value gate = g_.moe_linear(h, {experts("gate")}, route.ids);
    const Value up = g_.moe_linear(h, {experts("up")}, route.ids);
    const Value act = g_.gated_act(Act::silu, gate, up);
    return g_.add(x, g_.moe_combine(g_.moe_linear(act, {experts("down")}, route.ids), route.weights));
  }
  // One head of 64 with RoPE and an output gate, without the residual.
  Value attention(Value x) {
    const RopeParams rope{.n_dims = 64};
    const Value q = g_.linear(x, q8("q", 64)), k = g_.linear(x, q8("k", 64)), v = g_.linear(x, q8("v", 64));
    const Value gate = g_.linear(x, q8("output_gate", 64));
    const Value out =
        g_.attention({.q = g_.rope(g_.heads(q, 1), rope), .k = g_.rope(g_.heads(k, 1), rope), .v = g_.heads(v, 1)}, {});
    return g_.linear(g_.gated_act(Act::sigmoid, gate, out), q8("o", kDim, 64));
  }
  Value norm(Value x, const std::string& name) {
    set_.add(name, {kDim});
    return g_.rms_norm(x, g_.weight(name, {kDim}), 1e-6f);
  }
  Value embedded() { return g_.embed(f16("table")); }
  // The calls between the embedding and the rows of the output.
  std::vector<FusedCall> calls(Value result, const KernelLimits& kernels, const StepClass& sizes,
                               bool keeps_values = false) {
    g_.logits(g_.linear(g_.rows(result), g_.weight("table", {kDim, kDim})));
    graph_ = std::move(g_.finish().value());
    const Graph* const graph = &graph_;
    LayoutUploader uploader({.backend = "test"});
    weights_ = std::move(Weights::upload({&graph, 1}, device_, uploader, [](auto) {}).value());
    const GraphUses uses(graph_, keeps_values);
    const int end = uses.index_of(*std::ranges::find(graph_.nodes(), Op::rows, &Node::op));
    std::vector<FusedCall> out = fuse(graph_, uses, *weights_, kernels, sizes, keeps_values);
    std::erase_if(
        out, [&](const FusedCall& call) { return call.at >= end || std::holds_alternative<EmbedCall>(call.kind); });
    return out;
  }
  std::vector<std::string> names(Value result, const KernelLimits& kernels, const StepClass& sizes,
                                 bool keeps_values = false) {
    std::vector<std::string> out;
    for (const FusedCall& call : calls(result, kernels, sizes, keeps_values)) {
      out.push_back(std::visit(Name{}, call.kind));
    }
    return out;
  }
  // In how many calls a node of this op is.
  static int64_t n_calls_with(std::span<const FusedCall> calls, Op op) {
    return std::ranges::count_if(calls, [&](const FusedCall& call) {
      return std::ranges::any_of(call.nodes, [&](const Node* n) { return n->op == op; });
    });
  }

  WeightSet set_;
  GraphBuilder g_;
  Graph graph_;
  LayoutDevice device_;
  std::unique_ptr<Weights> weights_;
};

using Names = std::vector<std::string>;

TEST_F(KernelTable, matmuls_of_one_input_run_together_a_launch_per_format) {
  const Value x = embedded();
  const Value a = g_.linear(x, f16("a")), b = g_.linear(x, q8("b")), c = g_.linear(x, f16("c"));
  const Value sum = g_.add(g_.add(a, b), c);
  EXPECT_EQ(names(sum, limits(), kDecode), (Names{"matmul 2", "matmul 1", "add", "add"}));
}

TEST_F(KernelTable, a_decode_launch_takes_matrices_of_several_formats_if_the_kernel_can) {
  const Value x = embedded();
  const Value sum = g_.add(g_.linear(x, f16("a")), g_.linear(x, q8("b")));
  KernelLimits kernels = limits();
  kernels.has_mixed_gemv = true;
  EXPECT_EQ(names(sum, kernels, kDecode), (Names{"matmul 2", "add"}));
}

TEST_F(KernelTable, norm_and_residual_add_are_prologue_and_epilogue_in_decode) {
  const Value x = embedded();
  const Value h = norm(x, "norm");
  const Value act = g_.gated_act(Act::silu, g_.linear(h, q8("gate")), g_.linear(h, q8("up")));
  const Value out = g_.add(x, g_.linear(act, q8("down")));
  EXPECT_EQ(names(out, limits(), kDecode), (Names{"matmul 2 after norm with act", "matmul 1 with add"}));
}

TEST_F(KernelTable, in_a_large_step_the_norm_quantizes_and_other_rows_have_a_kernel_of_their_own) {
  const Value x = embedded();
  const Value h = norm(x, "norm");
  const Value act = g_.gated_act(Act::silu, g_.linear(h, q8("gate")), g_.linear(h, q8("up")));
  const Value out = g_.add(x, g_.linear(act, q8("down")));
  EXPECT_EQ(names(out, limits(), kPrefill),
            (Names{"norm to q8", "matmul 2 of q8 with act", "quantize", "matmul 1 of q8 with add"}));
}

TEST_F(KernelTable, an_input_is_quantized_once_for_all_its_matmuls) {
  const Value x = embedded();
  const Value a = g_.linear(x, q8("a"));
  const Value b = g_.linear(g_.add(x, a), q8("b"));  // reads a, so that the last matmul of x is not of its group
  const Value c = g_.linear(x, q8("c"));
  EXPECT_EQ(names(g_.add(b, c), limits(), kPrefill),
            (Names{"quantize", "matmul 1 of q8 with add", "matmul 1 of q8", "quantize", "matmul 1 of q8 with add"}));
}

TEST_F(KernelTable, a_gated_activation_without_epilogue_kernel_runs_alone) {
  const Value x = embedded();
  const Value act = g_.gated_act(Act::silu, g_.linear(x, f16("gate")), g_.linear(x, f16("up")));
  KernelLimits kernels = limits();
  kernels.has_gated_epilogue = [](const PanelFormat& format, bool, int64_t) { return format.q8_block > 0; };
  EXPECT_EQ(names(act, kernels, kPrefill), (Names{"matmul 2", "gated_act"}));
}

TEST_F(KernelTable, kept_values_are_not_fused) {
  const Value x = embedded();
  const Value h = norm(x, "norm");
  const Value act = g_.gated_act(Act::silu, g_.linear(h, q8("gate")), g_.linear(h, q8("up")));
  EXPECT_EQ(names(g_.add(x, act), limits(), kDecode, true),
            (Names{"norm", "matmul 1", "matmul 1", "gated_act", "add"}));
}

TEST_F(KernelTable, a_norm_before_the_residual_add_is_the_prologue_of_the_next_matmuls) {
  const Value x = embedded();
  const Value post = norm(g_.linear(x, q8("o")), "post_norm");
  const Value sum = g_.add(x, post);
  const Value h = norm(sum, "norm");
  const Value act = g_.gated_act(Act::silu, g_.linear(h, q8("gate")), g_.linear(h, q8("up")));
  const Value out = g_.add(sum, act);
  KernelLimits kernels = limits();
  kernels.max_residual_elems = kDim;
  EXPECT_EQ(names(out, kernels, kDecode), (Names{"matmul 1", "matmul 2 after residual after norm with act", "add"}));
}

TEST_F(KernelTable, a_read_of_the_sum_before_those_matmuls_makes_the_residual_add_a_kernel) {
  const Value x = embedded();
  const Value sum = g_.add(x, norm(g_.linear(x, q8("o")), "post_norm"));
  const Value early = g_.scale(sum, 2);
  const Value h = norm(sum, "norm");
  const Value act = g_.gated_act(Act::silu, g_.linear(h, q8("gate")), g_.linear(h, q8("up")));
  KernelLimits kernels = limits();
  kernels.max_residual_elems = kDim;
  EXPECT_EQ(names(g_.add(early, act), kernels, kDecode),
            (Names{"matmul 1", "norm_residual", "scale", "matmul 2 after norm with act", "add"}));
}

TEST_F(KernelTable, in_a_large_step_the_residual_add_takes_the_norm_before_the_next_matmuls) {
  const Value x = embedded();
  const Value sum = g_.add(x, norm(g_.linear(x, q8("o")), "post_norm"));
  KernelLimits kernels = limits();
  kernels.max_residual_elems = kDim;
  kernels.norms_after_residual = true;
  EXPECT_EQ(names(g_.add(sum, g_.linear(norm(sum, "norm"), q8("up"))), kernels, kPrefill),
            (Names{"quantize", "matmul 1 of q8", "norm_residual with norm to q8", "matmul 1 of q8 with add"}));
}

TEST_F(KernelTable, the_residual_add_is_a_node_of_the_launch_that_computes_it) {
  const Value x = embedded();
  const Value sum = g_.add(x, norm(g_.linear(x, q8("o")), "post_norm"));
  const Value h = norm(sum, "norm");
  const Value gate = g_.linear(h, q8("gate")), up = g_.linear(h, q8("up")), other = g_.linear(h, f16("other"));
  const Value out = g_.concat(g_.gated_act(Act::silu, gate, up), other);
  KernelLimits kernels = limits();
  kernels.max_residual_elems = kDim;
  const std::vector<FusedCall> calls = this->calls(g_.slice(out, 0, kDim), kernels, kDecode);
  EXPECT_EQ(n_calls_with(calls, Op::linear), 3) << "o; gate and up; other";
  EXPECT_EQ(n_calls_with(calls, Op::add), 1);
  EXPECT_EQ(n_calls_with(calls, Op::gated_act), 1);
}

TEST_F(KernelTable, routing_is_a_node_of_the_launch_that_computes_it) {
  const Value h = norm(embedded(), "norm");
  const GraphBuilder::Route route = g_.moe_route(g_.linear(h, f16("router", 8)), {.n_used = 2});
  const Value gate = g_.moe_linear(h, {experts("gate")}, route.ids);
  const Value up = g_.moe_linear(h, {experts("up", "f16")}, route.ids);
  const Value act = g_.gated_act(Act::silu, gate, up);
  const Value out = g_.moe_combine(g_.moe_linear(act, {experts("down")}, route.ids), route.weights);
  const std::vector<FusedCall> calls = this->calls(out, limits(), kDecode);
  EXPECT_EQ(n_calls_with(calls, Op::moe_linear), 3) << "gate and up have two formats: two launches";
  EXPECT_EQ(n_calls_with(calls, Op::moe_route), 1);
}

TEST_F(KernelTable, split_k_parts_need_the_kernel_that_takes_several_formats) {
  const auto is_split_k = [](const FusedCall& call) {
    const MatmulCall* matmul = std::get_if<MatmulCall>(&call.kind);
    return matmul && std::ranges::any_of(matmul->parts, &MatmulPart::is_split_k);
  };
  EXPECT_TRUE(std::ranges::none_of(calls(moe(embedded()), limits(), kDecode), is_split_k));
}

TEST_F(KernelTable, attention_with_rope_and_output_gate_is_one_kernel_in_decode) {
  EXPECT_EQ(names(attention(embedded()), limits(), kDecode), (Names{"matmul 4", "decode with gate", "matmul 1"}));
}

TEST_F(KernelTable, in_a_large_step_the_output_gate_runs_alone) {
  EXPECT_EQ(names(attention(embedded()), limits(), kPrefill),
            (Names{"quantize", "matmul 4 of q8", "attention with inputs", "gated_act", "matmul 1 of q8"}));
}

TEST_F(KernelTable, experts_route_themselves_and_sum_their_down_projections_in_decode) {
  EXPECT_EQ(names(moe(embedded()), limits(), kDecode),
            (Names{"matmul 1 after norm", "matmul 2 after norm that routes with act", "moe_down with add"}));
}

TEST_F(KernelTable, in_a_large_step_the_router_is_a_kernel_and_the_sum_takes_the_residual) {
  KernelLimits kernels = limits();
  kernels.max_combine_elems = kDim;
  EXPECT_EQ(names(moe(embedded()), kernels, kPrefill),
            (Names{"norm to q8", "matmul 1", "route", "matmul 2 of q8 with act", "quantize", "matmul 1 of q8",
                   "combine with add"}));
}

// A kernel that takes the shared expert, the residual and the next norm; the shared expert's own matmuls stay.
TEST_F(KernelTable, the_sum_of_experts_takes_the_shared_expert_the_residual_and_the_next_norm) {
  const auto build = [&](Value x) {
    const Value h = norm(x, "norm"), gate = g_.linear(h, f16("shared_gate", 1)), shared = g_.linear(h, q8("shared"));
    const GraphBuilder::Route route = g_.moe_route(g_.linear(h, f16("router", 8)), {.n_used = 2});
    const Value sum = g_.moe_combine(g_.moe_linear(h, {experts("down")}, route.ids), route.weights);
    const Value out = g_.add(x, g_.add(sum, g_.gated_act(Act::sigmoid, gate, shared)));
    return g_.add(out, g_.linear(norm(out, "next"), q8("last")));
  };
  KernelLimits kernels = limits();
  kernels.max_combine_elems = kDim;
  EXPECT_EQ(
      names(build(embedded()), kernels, kPrefill),
      (std::vector<std::string>{"norm to q8", "matmul 2", "matmul 1 of q8", "route", "matmul 1 of q8",
                                "combine with shared expert with add with norm to q8", "matmul 1 of q8 with add"}));
}

TEST_F(KernelTable, a_longer_row_of_the_sum_of_experts_takes_only_the_residual) {
  KernelLimits kernels = limits();
  kernels.max_combine_elems = kDim - 1;
  const Value out = moe(embedded());
  const std::vector<std::string> all = names(g_.add(out, g_.linear(norm(out, "next"), q8("last"))), kernels, kPrefill);
  EXPECT_EQ((std::vector<std::string>{all.end() - 3, all.end()}),
            (std::vector<std::string>{"combine with add", "norm to q8", "matmul 1 of q8 with add"}));
}

TEST_F(KernelTable, a_norm_that_is_not_the_first_reader_of_the_sum_of_experts_runs_alone) {
  KernelLimits kernels = limits();
  kernels.max_combine_elems = kDim;
  const Value out = moe(embedded()), first = g_.scale(out, 2);
  const std::vector<std::string> all =
      names(g_.add(first, g_.linear(norm(out, "next"), q8("last"))), kernels, kPrefill);
  EXPECT_EQ(std::ranges::count(all, "combine with add"), 1);
  EXPECT_EQ(std::ranges::count(all, "norm to q8"), 2);
}

TEST_F(KernelTable, two_gated_activations_run_together_before_the_first_result_is_read) {
  KernelLimits kernels = limits();
  kernels.pairs_gated_acts = true;
  kernels.has_gated_epilogue = [](const PanelFormat&, bool, int64_t) { return false; };
  const Value x = embedded();
  const auto act = [&](const std::string& name, Value in) {
    return g_.gated_act(Act::silu, g_.linear(in, q8(name + "_gate")), g_.linear(in, q8(name + "_up")));
  };
  const Value first = act("first", x), second = act("second", x), third = act("third", g_.linear(first, q8("down")));
  const std::vector<FusedCall> all = calls(g_.add(g_.add(third, second), first), kernels, kPrefill);
  const auto pair = std::ranges::find_if(
      all, [](const FusedCall& call) { return std::holds_alternative<GatedActPairCall>(call.kind); });
  ASSERT_NE(pair, all.end());
  EXPECT_EQ(std::get<GatedActPairCall>(pair->kind).acts[0].out.value, first);
  EXPECT_EQ(std::get<GatedActPairCall>(pair->kind).acts[1].out.value, second);
  EXPECT_EQ(n_calls_with(all, Op::gated_act), 2);  // the third reads what the first computes
}

}  // namespace
}  // namespace zinc::gpu
