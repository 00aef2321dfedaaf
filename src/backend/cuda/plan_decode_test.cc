// The launches of a decode step (batch 1) and their compile-time shapes.
#include <set>

#include "tests/support/cuda_plan_fixture.h"

namespace zinc::cuda {
namespace {

using Dense = simt::DenseMatrix;
using PlainGemv = simt::GemvParams<simt::PlainPart<Dense>, simt::PlainInput, simt::NoInput>;
using ResidualGemv = simt::GemvParams<simt::ResidualPart<Dense>, simt::PlainInput, simt::NoInput>;
using GluGemv = simt::GemvParams<simt::GluPart<Dense>, simt::PlainInput, simt::NoInput>;
using MoeDown = simt::GemvMoeDownParams<simt::PlainInput, simt::RouterLogits, simt::NoInput>;

TEST_F(CudaPlanTest, norms_and_the_residual_add_are_one_launch) {
  weights_set_.add("factor", {1});
  GraphBuilder g("norms", weights_set_.source());
  const Value norm = g.weight("norm", {kDim}), x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto normed = [&](Value v) { return g.rms_norm(v, norm, 1e-6f); };
  const auto linear = [&](const char* name, Value v) { return g.linear(v, g.weight(name, {kDim, kDim})); };
  Value sum = g.add(x, normed(linear("q", x)));
  const Value h = normed(sum), k = linear("k", h), v = linear("v", h);
  const Value both = g.add(normed(k), normed(v));
  sum = g.mul(g.add(sum, normed(both)), g.weight("factor", {1}));
  set_graph(g, sum, {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<std::string> kernels = kernels_of(*fake().last_replay);
  EXPECT_EQ(kernels, (std::vector<std::string>{"embed", "gemv", "gemv", "norm_residual", "gemv", "sample_parts",
                                               "sample_rows"}));  // the first norm_residual is a prologue
  ASSERT_TRUE(plan->wait().ok());
  const std::unique_ptr<Plan> larger = compile({.max_tokens = 16, .max_seqs = 1, .max_outputs = 1});
  start(*larger, 0, 12);
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  EXPECT_EQ(std::ranges::count(kernels_of(launches), "norm_residual"), 2);
  EXPECT_EQ(std::ranges::count(kernels_of(launches), "elementwise"), 0);
  const auto fused = std::ranges::find(launches, "norm_residual", &FakeLaunch::kernel);
  EXPECT_EQ(fused->config.grid_x, 16u);
  ASSERT_TRUE(larger->wait().ok());
}

// Norm and residual add are the prologue of the matmuls that norm the sum, if no other node reads the sum first.
TEST_F(CudaPlanTest, norm_and_residual_add_are_a_matmul_prologue) {
  GraphBuilder g("summed", weights_set_.source());
  const Value norm = g.weight("norm", {kDim}), x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto normed = [&](Value v) { return g.rms_norm(v, norm, 1e-6f); };
  const auto linear = [&](const char* name, Value v) { return g.linear(v, g.weight(name, {kDim, kDim})); };
  const Value q = linear("q", x), sum = g.add(x, g.rms_norm(q, norm, 1e-5f)), h = normed(sum);
  const Value act = g.gated_act(Act::gelu, linear("k", h), linear("v", h));
  set_graph(g, g.add(sum, normed(linear("o", act))), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  // q; gate and up; down; the residual sum read only by the head; the head.
  EXPECT_EQ(kernels_of(launches), (std::vector<std::string>{"embed", "gemv", "gemv", "gemv", "norm_residual", "gemv",
                                                            "sample_parts", "sample_rows"}));
  EXPECT_EQ(gemv_policies(launches, "Prologue"),
            (std::vector<std::string>{"PlainPrologue", "NormResidualPrologue", "PlainPrologue", "PlainPrologue"}));
  EXPECT_EQ(gemv_policies(launches, "Epilogue"),
            (std::vector<std::string>{"PlainEpilogue", "GluEpilogue<1>", "PlainEpilogue", "PlainEpilogue"}));
  using GateUp = simt::GemvParams<simt::GluPart<simt::DenseMatrix>, simt::NormResidualInput, simt::NoInput>;
  const simt::NormResidualInput source = params_of<GateUp>(launches[2]).input;
  const auto last = params_of<simt::NormResidualParams>(launches[4]);
  EXPECT_EQ(source.row.x, params_of<PlainGemv>(launches[1]).parts[0].out);
  EXPECT_EQ(source.residual_out, last.residual);
  EXPECT_EQ(source.post_norm_eps, 1e-5f);
  EXPECT_EQ(source.row.norm_eps, 1e-6f);
  const std::set<const float*> addresses = {source.row.x, source.residual, source.residual_out,
                                            params_of<GateUp>(launches[2]).parts[0].out};
  EXPECT_EQ(addresses.size(), 4u) << "they are live at the same time";
  ASSERT_TRUE(plan->wait().ok());
}

// A norm that the sum's first reader needs is a second output of the same kernel.
TEST_F(CudaPlanTest, a_branch_of_the_residual_sum_runs_in_the_same_launch) {
  weights_set_.add("scales", {kDim});
  GraphBuilder g("branch", weights_set_.source());
  const Value norm = g.weight("norm", {kDim}), x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto linear = [&](const char* name, Value v) { return g.linear(v, g.weight(name, {kDim, kDim})); };
  const Value sum = g.add(x, g.rms_norm(linear("q", x), norm, 1e-6f));
  const Value branch = g.mul(g.scale(g.rms_norm(sum, {}, 1e-5f), 0.5f), g.weight("scales", {kDim}));
  const Value h = linear("k", g.rms_norm(sum, norm, 1e-6f));
  set_graph(g, g.add(h, linear("v", branch)), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  EXPECT_EQ(kernels_of(*fake().last_replay), (std::vector<std::string>{"embed", "gemv", "norm_residual", "gemv", "gemv",
                                                                       "gemv", "sample_parts", "sample_rows"}));
  const auto params = params_of<simt::NormResidualParams>((*fake().last_replay)[2]);
  EXPECT_NE(params.second_out, nullptr);
  EXPECT_NE(params.second_out, params.out);
  EXPECT_EQ(params.second_factor, 0.5f);
  EXPECT_EQ(params.second_eps, 1e-5f);
  ASSERT_TRUE(plan->wait().ok());
}

// For two blocks: three segments of gate and of up; one segment of each of five experts.
TEST_F(CudaPlanTest, an_odd_number_of_segments_is_distributed_over_the_blocks_of_a_cluster) {
  constexpr int kWide = 768, kFf = 256, kExperts = 8;
  fake().n_sms = 132;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("wide", {kWide, kDim}, q8).add("gate", {kDim, kWide}, q8).add("up", {kDim, kWide}, q8);
  weights_set_.add("router", {kExperts, kDim}).add("down", {kExperts, kDim, kFf}, q8);
  for (const char* name : {"gates", "ups"}) weights_set_.add(name, {kExperts, kFf, kDim}, q8);
  GraphBuilder g("odd", weights_set_.source());
  const Value wide = g.linear(g.embed(g.weight("embd", {kVocab, kDim})), g.weight("wide", {kWide, kDim}));
  const auto gated = [&](Value a, Value b) { return g.gated_act(Act::silu, a, b); };
  const Value x = gated(g.linear(wide, g.weight("gate", {kDim, kWide})), g.linear(wide, g.weight("up", {kDim, kWide})));
  const auto route = g.moe_route(g.linear(x, g.weight("router", {kExperts, kDim})), {.n_used = 5});
  const auto experts = [&](Value v, const char* name, const Shape& shape) {
    return g.moe_linear(v, {.weight = g.weight(name, shape)}, route.ids);
  };
  const Value act = gated(experts(x, "gates", {kExperts, kFf, kDim}), experts(x, "ups", {kExperts, kFf, kDim}));
  set_graph(g, g.add(x, g.moe_combine(experts(act, "down", {kExperts, kDim, kFf}), route.weights)), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  // embed, wide, gate and up, the router, the experts' gate and up, their down and combine.
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  ASSERT_EQ(launches[2].kernel, "gemv");
  ASSERT_EQ(launches[5].kernel, "gemv_moe_down");
  for (const auto& [launch, split] : {std::pair{launches[2], params_of<GluGemv>(launches[2]).problems[0].split},
                                      {launches[5], params_of<MoeDown>(launches[5]).split}}) {
    EXPECT_EQ(launch.attribute(kClusterDimension), 2u) << launch.kernel;
    const int n_clusters = static_cast<int>(launch.config.grid_x) / 2;
    EXPECT_EQ(split.panels_per_cluster * n_clusters + split.n_extra, kDim / simt::kPanelRows) << launch.kernel;
  }
  ASSERT_TRUE(plan->wait().ok());
}

// As in Gemma 4: the router reads the residual sum, so it does not depend on the dense part. Its logits are complete
// when the experts' launch starts, which routes before its PDL wait.
TEST_F(CudaPlanTest, a_router_whose_input_is_ready_joins_the_launch_of_an_earlier_gate) {
  constexpr int kExperts = 8;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("scales", {kDim}).add("router", {kExperts, kDim}).add("each", {kExperts, 2 * kDim, kDim}, q8);
  weights_set_.add("back", {kExperts, kDim, kDim}, q8);
  GraphBuilder g("gemma", weights_set_.source());
  const Value norm = g.weight("norm", {kDim}), x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto normed = [&](Value v) { return g.rms_norm(v, norm, 1e-6f); };
  const auto linear = [&](const char* name, Value v) { return g.linear(v, g.weight(name, {kDim, kDim})); };
  const Value sum = g.add(x, normed(linear("q", x)));
  const Value branch = g.mul(g.scale(g.rms_norm(sum, {}, 1e-5f), 0.5f), g.weight("scales", {kDim}));
  const Value h = normed(sum), dense = linear("o", g.gated_act(Act::gelu, linear("k", h), linear("v", h)));
  const auto [ids, weights] = g.moe_route(g.linear(branch, g.weight("router", {kExperts, kDim})), {.n_used = 2});
  const Value each = g.moe_linear(normed(sum), {.weight = g.weight("each", {kExperts, 2 * kDim, kDim})}, ids);
  const Value act = g.gated_act(Act::gelu, g.slice(each, 0, kDim), g.slice(each, kDim, kDim));
  const Value back = g.moe_linear(act, {.weight = g.weight("back", {kExperts, kDim, kDim})}, ids);
  set_graph(g, g.add(sum, normed(g.add(normed(dense), normed(g.moe_combine(back, weights))))), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  // q; gate and up with the router; down; the experts; their down and combine; the head.
  EXPECT_EQ(kernels_of(launches),
            (std::vector<std::string>{"embed", "gemv", "norm_residual", "gemv", "gemv", "gemv_experts", "gemv_moe_down",
                                      "norm_residual", "gemv", "sample_parts", "sample_rows"}));
  EXPECT_EQ(gemv_policies(launches, "SplitKInput"),
            (std::vector<std::string>{"NoInput", "PlainInput", "NoInput", "NoInput"}));
  const std::vector<simt::GemvPdl> pdl = gemv_pdl(launches);
  EXPECT_EQ(of_each(&simt::GemvPdl::triggers_late, pdl), (std::vector<int>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(of_each(&simt::GemvPdl::reads_row_before_wait, pdl), (std::vector<int>{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(of_each(&simt::GemvPdl::routes_before_wait, pdl), (std::vector<int>{0, 0, 0, 1, 1, 0}));
  using GateUpAndRouter = simt::GemvParams<simt::GluPart<Dense>, simt::NormInput, simt::PlainInput>;
  EXPECT_EQ(params_of<GateUpAndRouter>(launches[3]).split_k_input.x,
            params_of<simt::NormResidualParams>(launches[2]).second_out);
  ASSERT_TRUE(plan->wait().ok());
}

// qwen3-0.6b's output matrix: eight warp pairs, eight segments.
TEST_F(CudaPlanTest, a_panel_with_one_segment_per_warp_pair_uses_no_cluster) {
  constexpr int kHeads = 2048, kRow = 1024;
  fake().n_sms = 132;
  const Format& q4 = *find_format("q4_k");
  weights_set_.add("heads", {kHeads, kDim}, *find_format("q8_0")).add("out", {kRow, kHeads}, q4);
  weights_set_.add("wide", {3 * kRow, kRow}, q4).add("down", {kDim, 3 * kRow}, q4);
  GraphBuilder g("small", weights_set_.source());
  const auto linear = [&](Value v, const char* name, int64_t n_out, int64_t n_in) {
    return g.linear(v, g.weight(name, {n_out, n_in}));
  };
  const Value heads = linear(g.embed(g.weight("embd", {kVocab, kDim})), "heads", kHeads, kDim);
  const Value wide = linear(linear(heads, "out", kRow, kHeads), "wide", 3 * kRow, kRow);
  set_graph(g, linear(wide, "down", kDim, 3 * kRow), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<simt::GemvShape> shapes = gemv_shapes(*fake().last_replay);
  EXPECT_EQ(of_each(&simt::GemvShape::cluster_size, shapes), (std::vector<int>{1, 1, 1, 2, 1}));
  ASSERT_TRUE(plan->wait().ok());
}

TEST_F(CudaPlanTest, an_add_of_experts_and_a_matmul_is_the_epilogue_of_the_matmul) {
  constexpr int kExperts = 8;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("router", {kExperts, kDim}).add("down", {kExperts, kDim, kDim}, q8);
  weights_set_.add("each", {kExperts, kDim, kDim}, q8);
  GraphBuilder g("moe_and_matmul", weights_set_.source());
  const Value x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto [ids, weights] = g.moe_route(g.linear(x, g.weight("router", {kExperts, kDim})), {.n_used = 2});
  const Value each = g.moe_linear(x, {.weight = g.weight("each", {kExperts, kDim, kDim})}, ids);
  const Value down = g.moe_linear(each, {.weight = g.weight("down", {kExperts, kDim, kDim})}, ids);
  const Value sum = g.add(g.moe_combine(down, weights), g.linear(x, g.weight("o", {kDim, kDim})));
  set_graph(g, sum, {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  int n_reading = 0;  // the matmul adds the result of the MoE down projection
  for (size_t i = 1; i < launches.size(); ++i) {
    if (launches[i].kernel != "gemv" || launches[i - 1].kernel != "gemv_moe_down") continue;
    const float* out = params_of<MoeDown>(launches[i - 1]).out;
    if (params_of<ResidualGemv>(launches[i]).parts[0].residual == out) ++n_reading;
  }
  EXPECT_EQ(n_reading, 1);
  EXPECT_EQ(gemv_policies(launches, "Epilogue"),  // the router, the experts, the matmul and the head
            (std::vector<std::string>{"PlainEpilogue", "PlainEpilogue", "ResidualEpilogue", "PlainEpilogue"}));
  ASSERT_TRUE(plan->wait().ok());
}

TEST_F(CudaPlanTest, a_packed_gate_up_matrix_of_experts_is_one_launch_in_steps_of_few_rows) {
  constexpr int kExperts = 8, kWide = 64;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("router", {kExperts, kDim});
  weights_set_.add("both", {kExperts, 2 * kWide, kDim}, q8).add("down", {kExperts, kDim, kWide}, q8);
  GraphBuilder g("gate_up", weights_set_.source());
  const Value x = g.embed(g.weight("embd", {kVocab, kDim}));
  const Value h = g.rms_norm(x, g.weight("norm", {kDim}), 1e-6f);
  const auto [ids, weights] = g.moe_route(g.linear(h, g.weight("router", {kExperts, kDim})), {.n_used = 2});
  const Value both = g.moe_linear(h, {.weight = g.weight("both", {kExperts, 2 * kWide, kDim})}, ids);
  const Value act = g.gated_act(Act::gelu, g.slice(both, 0, kWide), g.slice(both, kWide, kWide));
  const Value out = g.moe_linear(act, {.weight = g.weight("down", {kExperts, kDim, kWide})}, ids);
  set_graph(g, g.add(x, g.moe_combine(out, weights)), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 16, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  // The router, the experts' gate and up, their down with the weighted sum.
  EXPECT_EQ(kernels_of(*fake().last_replay), (std::vector<std::string>{"embed", "gemv", "gemv_experts", "gemv_moe_down",
                                                                       "gemv", "sample_parts", "sample_rows"}));
  // Both read the router logits themselves: the down projection does not wait for the ids of the first launch.
  using GateUp = simt::GemvExpertsParams<simt::GluPart<simt::ExpertMatrix>, simt::NormInput, simt::StoredRouting>;
  const float* logits = params_of<GateUp>((*fake().last_replay)[2]).experts.logits.partial;
  EXPECT_NE(logits, nullptr);
  EXPECT_EQ(params_of<MoeDown>((*fake().last_replay)[3]).experts.partial, logits);
  ASSERT_TRUE(plan->wait().ok());
  for (const int n_tokens : {3, 12}) {
    start(*plan, 0, n_tokens);
    EXPECT_EQ(std::ranges::count(kernels_of(*fake().last_replay), "gated_act"), n_tokens > 8 ? 1 : 0) << n_tokens;
    EXPECT_EQ(std::ranges::count(kernels_of(*fake().last_replay), "gemv_experts"), n_tokens > 8 ? 0 : 1) << n_tokens;
    ASSERT_TRUE(plan->wait().ok());
  }
}

TEST_F(CudaPlanTest, every_kernel_after_the_first_may_start_early) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 4, .max_seqs = 1, .max_outputs = 1});
  for (const std::vector<FakeLaunch>& graph : fake().graphs) {
    for (size_t i = 0; i < graph.size(); ++i) EXPECT_EQ(graph[i].attribute(kProgrammaticLaunch), i == 0 ? 0u : 1u);
  }
}

// Experts that read make_row(normed row). For each gemv (router, experts, MoE down, head): does it trigger its
// dependents late, and does it read its row or the router's logits before its PDL wait?
class CudaPdlTest : public CudaPlanTest {
 protected:
  struct Starts {
    std::vector<int> late, reads_row_early, routes_early;
    bool operator==(const Starts&) const = default;
  };
  Starts starts(const std::function<Value(GraphBuilder&, Value h)>& make_row) {
    constexpr int kExperts = 8;
    const Format& q8 = *find_format("q8_0");
    weights_set_.add("router", {kExperts, kDim}).add("other", {kDim, kDim}, *find_format("f32"));
    weights_set_.add("each", {kExperts, kDim, kDim}, q8).add("down", {kExperts, kDim, kDim}, q8);
    GraphBuilder g("experts", weights_set_.source());
    const Value x = g.embed(g.weight("embd", {kVocab, kDim}));
    const Value h = g.rms_norm(x, g.weight("norm", {kDim}), 1e-6f);
    const Value logits = g.linear(h, g.weight("router", {kExperts, kDim}));
    const Value row = make_row(g, h);
    const auto [ids, weights] = g.moe_route(logits, {.n_used = 2});
    const Value each = g.moe_linear(row, {.weight = g.weight("each", {kExperts, kDim, kDim})}, ids);
    const Value down = g.moe_linear(each, {.weight = g.weight("down", {kExperts, kDim, kDim})}, ids);
    set_graph(g, g.add(x, g.moe_combine(down, weights)), {});
    const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
    start(*plan, 0, 1);
    const std::vector<simt::GemvPdl> pdl = gemv_pdl(*fake().last_replay);
    EXPECT_TRUE(plan->wait().ok());
    return {of_each(&simt::GemvPdl::triggers_late, pdl), of_each(&simt::GemvPdl::reads_row_before_wait, pdl),
            of_each(&simt::GemvPdl::routes_before_wait, pdl)};
  }
};

TEST_F(CudaPdlTest, experts_read_their_input_and_moe_down_the_logits_before_the_pdl_wait) {
  EXPECT_EQ(starts([](GraphBuilder&, Value h) { return h; }), (Starts{{1, 1, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}}));
}

TEST_F(CudaPdlTest, experts_wait_for_an_input_written_by_the_routers_launch) {
  const auto linear = [](GraphBuilder& g, Value h) { return g.linear(h, g.weight("other", {kDim, kDim})); };
  EXPECT_EQ(starts(linear), (Starts{{1, 1, 0, 0}, {0, 0, 0, 0}, {0, 0, 1, 0}}));
}

TEST_F(CudaPdlTest, experts_wait_for_an_input_written_by_a_launch_that_triggers_early) {
  const auto scaled = [](GraphBuilder& g, Value h) { return g.scale(h, 2.0f); };
  EXPECT_EQ(starts(scaled), (Starts{{1, 1, 0, 0}, {0, 0, 0, 0}, {0, 0, 1, 0}}));
}

// The router's launch writes the sum that the experts' norm reads, so they cannot read it before their PDL wait.
TEST_F(CudaPlanTest, experts_wait_for_a_residual_sum_written_by_the_routers_launch) {
  constexpr int kExperts = 8;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("router", {kExperts, kDim});
  weights_set_.add("each", {kExperts, kDim, kDim}, q8).add("down", {kExperts, kDim, kDim}, q8);
  GraphBuilder g("experts", weights_set_.source());
  const Value norm = g.weight("norm", {kDim}), x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto normed = [&](Value v) { return g.rms_norm(v, norm, 1e-6f); };
  const Value sum = g.add(x, normed(g.linear(x, g.weight("q", {kDim, kDim}))));
  const auto [ids, weights] = g.moe_route(g.linear(normed(sum), g.weight("router", {kExperts, kDim})), {.n_used = 2});
  const Value each = g.moe_linear(normed(sum), {.weight = g.weight("each", {kExperts, kDim, kDim})}, ids);
  const Value down = g.moe_linear(each, {.weight = g.weight("down", {kExperts, kDim, kDim})}, ids);
  set_graph(g, g.add(sum, g.moe_combine(down, weights)), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  EXPECT_EQ(gemv_policies(launches, "Prologue"),
            (std::vector<std::string>{"PlainPrologue", "NormResidualPrologue", "NormPrologue", "PlainPrologue"}));
  const std::vector<simt::GemvPdl> pdl = gemv_pdl(launches);
  EXPECT_EQ(of_each(&simt::GemvPdl::triggers_late, pdl), (std::vector<int>{0, 1, 1, 0, 0}));
  EXPECT_EQ(of_each(&simt::GemvPdl::reads_row_before_wait, pdl), (std::vector<int>{0, 0, 0, 0, 0}));
  EXPECT_EQ(of_each(&simt::GemvPdl::routes_before_wait, pdl), (std::vector<int>{0, 0, 0, 1, 0}));
  ASSERT_TRUE(plan->wait().ok());
}

// Pipeline stages: gemma4-31b's head with one or two per warp pair, and a pipeline with a little more than two per
// pair.
TEST(GemvShapeTest, stages_are_a_multiple_of_the_warp_pairs_if_the_pipeline_is_large_enough) {
  simt::GemvShape shape{};
  shape.n_columns = shape.cluster_size = 1;
  shape.has_bulk_copies = 1;
  shape.n_warp_pairs = 6;
  shape.pipeline_bytes = 74496;
  EXPECT_EQ(simt::pipeline_stages(shape, 6720), 11);
  shape.pipeline_bytes = 86016;
  EXPECT_EQ(simt::pipeline_stages(shape, 6720), 12);
  EXPECT_EQ(simt::pipeline_stages(shape, 6144), 12);
  EXPECT_EQ(simt::pipeline_stages(shape, 20000), 6);
  EXPECT_EQ(simt::pipeline_stages(shape, 1000), 30);
}

// An SM has 228 KB of shared memory; each block uses 1 KB more than it requests.
TEST_F(CudaPlanTest, two_decode_launches_share_an_sm_but_never_two_blocks_of_one_launch) {
  constexpr unsigned kAll = 228 << 10, kOwn = 1 << 10;
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  int n_seen = 0;
  unsigned before = 0;  // of the previous launch, if it has a block on each SM
  for (const FakeLaunch& launch : *fake().last_replay) {
    const unsigned bytes = launch.config.shared_bytes + kOwn;
    EXPECT_LE(bytes + before, kAll) << launch.kernel;
    const bool is_on_all = launch.config.grid_x >= static_cast<unsigned>(fake().n_sms);
    EXPECT_GT(2 * bytes + (is_on_all ? before : kAll / 3), kAll) << launch.kernel;
    before = is_on_all ? bytes : 0;
    if (!is_gemv(launch) && launch.kernel != "attention_decode") continue;
    EXPECT_EQ(launch.config.grid_x, static_cast<unsigned>(fake().n_sms)) << launch.kernel;
    EXPECT_LE(launch.config.block_x, 512u) << launch.kernel;
    ++n_seen;
  }
  EXPECT_EQ(n_seen, 7);
  ASSERT_TRUE(plan->wait().ok());
}

// Grid and cluster sizes for a wide matrix with few rows and for a router.
TEST_F(CudaPlanTest, few_panels_use_clusters_and_a_router_does_not_use_all_blocks) {
  constexpr int kWide = 4096, kExperts = 512;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("wide", {kWide, kDim}, q8).add("narrow", {kDim, kWide}, q8).add("many", {kExperts, kWide});
  weights_set_.add("experts", {kExperts, 32, kWide}, q8).add("back", {kExperts, kWide, 32}, q8);
  for (const int n : {4, 5, 132}) {
    fake().n_sms = n;
    GraphBuilder g("clusters", weights_set_.source());
    const Value x = g.embed(g.weight("embd", {kVocab, kDim}));
    const Value wide = g.linear(x, g.weight("wide", {kWide, kDim}));
    const auto [ids, weights] = g.moe_route(g.linear(wide, g.weight("many", {kExperts, kWide})), {.n_used = 2});
    const Value each = g.moe_linear(wide, {.weight = g.weight("experts", {kExperts, 32, kWide})}, ids);
    const Value back = g.moe_linear(each, {.weight = g.weight("back", {kExperts, kWide, 32})}, ids);
    set_graph(g, g.linear(g.moe_combine(back, weights), g.weight("narrow", {kDim, kWide})), {});
    const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
    start(*plan, 0, 1);
    bool has_cluster = false;
    for (const FakeLaunch& launch : *fake().last_replay) {
      if (!is_gemv(launch)) continue;
      const unsigned cluster = std::max(1u, launch.attribute(kClusterDimension));
      EXPECT_EQ(launch.config.grid_x, static_cast<unsigned>(n) / cluster * cluster);
      const auto params = params_of<PlainGemv>(launch);  // the problems come before the input
      bool is_all_split_k = launch.kernel == "gemv";
      for (int i = 0; is_all_split_k && i < params.n_problems; ++i) is_all_split_k = params.problems[i].is_split_k != 0;
      EXPECT_FALSE(is_all_split_k && cluster > 1);
      has_cluster = has_cluster || cluster > 1;
    }
    EXPECT_TRUE(has_cluster);
    ASSERT_TRUE(plan->wait().ok());
  }
}

TEST_F(CudaPlanTest, gpus_without_dependent_launch_run_the_decode_kernels_one_after_the_other) {
  fake().major = 8;
  fake().minor = 9;
  fake().has_clusters = 0;
  fake().shared_bytes = 99 << 10;
  set_graph_of_two_layers();
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  int n_seen = 0;
  for (const FakeLaunch& launch : *fake().last_replay) {
    EXPECT_EQ(launch.attribute(kProgrammaticLaunch), 0u) << launch.kernel;
    EXPECT_EQ(launch.attribute(kClusterDimension), 0u) << launch.kernel;
    if (is_gemv(launch) || launch.kernel == "attention_decode") ++n_seen;
  }
  EXPECT_EQ(n_seen, 7) << "as on Hopper";
  for (const simt::GemvShape& shape : gemv_shapes(*fake().last_replay)) EXPECT_EQ(shape.has_bulk_copies, 0);
  ASSERT_TRUE(plan->wait().ok());
}

TEST_F(CudaPlanTest, a_gpu_used_as_an_older_one_has_only_its_features) {
  const auto open = [](const char* text) {
    return Device::open(FakeDriver::api(), parse_device(text).value(),
                        [](const KernelProgram&) { return std::vector<char>(1); });
  };
  const DeviceLimits ada = open("0@8.9").value()->limits();
  EXPECT_FALSE(ada.has_bulk_copies() || ada.has_wgmma() || ada.has_clusters || ada.has_dependent_launch());
  EXPECT_TRUE(ada.has_tensor_cores());
  EXPECT_EQ(ada.max_shared_bytes, 99 << 10);
  EXPECT_EQ(ada.n_sms, fake().n_sms) << "the GPU's own";
  const DeviceLimits blackwell = open("0@12.0").value()->limits();
  EXPECT_TRUE(blackwell.has_bulk_copies() && blackwell.has_dependent_launch() && !blackwell.has_wgmma());
  EXPECT_EQ(blackwell.max_shared_bytes, 99 << 10);
  EXPECT_EQ(open("0@8.0").value()->limits().max_shared_bytes, 163 << 10);
  EXPECT_EQ(open("0@7.5").value()->limits().max_shared_bytes, 64 << 10);
  EXPECT_EQ(open("0").value()->limits().max_shared_bytes, fake().shared_bytes);
}

// A row of 16,384 floats takes all 64 KB of a Turing block.
TEST_F(CudaPlanTest, a_token_of_a_model_whose_rows_do_not_fit_shared_memory_runs_like_a_small_batch) {
  constexpr int kWide = 16384;
  weights_set_.add("wide", {kWide, kDim}, *find_format("q8_0")).add("narrow", {kDim, kWide}, k_f16);
  for (const int kilobytes : {64, 99}) {
    fake().major = kilobytes == 64 ? 7 : 8;
    fake().minor = kilobytes == 64 ? 5 : 6;
    fake().has_clusters = 0;
    fake().shared_bytes = kilobytes << 10;
    GraphBuilder g("wide", weights_set_.source());
    const Value x = g.embed(g.weight("embd", {kVocab, kDim}));
    const Value wide = g.linear(x, g.weight("wide", {kWide, kDim}));
    set_graph(g, g.linear(wide, g.weight("narrow", {kDim, kWide})), {});
    const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
    start(*plan, 0, 1);
    EXPECT_EQ(std::ranges::any_of(*fake().last_replay, is_gemv), kilobytes == 99) << kilobytes;
    ASSERT_TRUE(plan->wait().ok());
  }
}

}  // namespace
}  // namespace zinc::cuda
