// Which launches a step of one row has, and what they are compiled for.
#include <set>

#include "tests/support/cuda_plan_fixture.h"

namespace zinc::cuda {
namespace {

TEST_F(CudaPlanTest, norms_before_the_residual_are_one_launch_with_it) {
  weights_set_.add("factor", {1});
  GraphBuilder g("norms", weights_set_.source());
  const Value norm = g.weight("norm", {kDim}), x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto normed = [&](Value v) { return g.rms_norm(v, norm, 1e-6f); };
  const auto product = [&](const char* name, Value v) { return g.linear(v, g.weight(name, {kDim, kDim})); };
  Value sum = g.add(x, normed(product("q", x)));
  const Value h = normed(sum), k = product("k", h), v = product("v", h);
  const Value both = g.add(normed(k), normed(v));
  sum = g.mul(g.add(sum, normed(both)), g.weight("factor", {1}));
  take(g, sum, {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<std::string> kernels = kernels_of(*fake().last_replay);
  EXPECT_EQ(kernels, (std::vector<std::string>{"embed", "product", "product", "add_normed", "product", "sample_parts",
                                               "sample_rows"}));  // the first one is done by its reader
  ASSERT_TRUE(plan->wait().ok());
  const std::unique_ptr<Plan> larger = compile({.max_tokens = 16, .max_seqs = 1, .max_outputs = 1});
  start(*larger, 0, 12);
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  EXPECT_EQ(std::ranges::count(kernels_of(launches), "add_normed"), 2);
  EXPECT_EQ(std::ranges::count(kernels_of(launches), "elementwise"), 0);
  const auto fused = std::ranges::find(launches, "add_normed", &FakeLaunch::kernel);
  EXPECT_EQ(fused->config.grid_x, 16u);
  ASSERT_TRUE(larger->wait().ok());
}

// The residual's sum with a normed row: by the products that norm it, as long as nobody reads it before them.
TEST_F(CudaPlanTest, products_add_the_row_they_norm_to_the_residual) {
  GraphBuilder g("summed", weights_set_.source());
  const Value norm = g.weight("norm", {kDim}), x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto normed = [&](Value v) { return g.rms_norm(v, norm, 1e-6f); };
  const auto product = [&](const char* name, Value v) { return g.linear(v, g.weight(name, {kDim, kDim})); };
  const Value made = product("q", x), sum = g.add(x, g.rms_norm(made, norm, 1e-5f)), h = normed(sum);
  const Value act = g.gated_act(Act::gelu, product("k", h), product("v", h));
  take(g, g.add(sum, normed(product("o", act))), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  // q; the gate; down; the sum that nobody but the output reads; the head.
  EXPECT_EQ(kernels_of(launches), (std::vector<std::string>{"embed", "product", "product", "product", "add_normed",
                                                            "product", "sample_parts", "sample_rows"}));
  const std::vector<simt::ProductShape> shapes = product_shapes(launches);
  EXPECT_EQ(of_each(&simt::ProductShape::input, shapes),
            (std::vector<int>{simt::kPlainRow, simt::kSummedRow, simt::kPlainRow, simt::kPlainRow}));
  const simt::RowSource source = params_of<simt::ProductParams>(launches[2]).source;
  const auto last = params_of<simt::AddNormedParams>(launches[4]);
  EXPECT_EQ(source.x, params_of<simt::ProductParams>(launches[1]).parts[0].out);
  EXPECT_EQ(source.sum, last.residual);
  EXPECT_EQ(source.sum_eps, 1e-5f);
  EXPECT_EQ(source.norm_eps, 1e-6f);
  const std::set<const float*> places = {source.x, source.residual, source.sum,
                                         params_of<simt::ProductParams>(launches[2]).parts[0].out};
  EXPECT_EQ(places.size(), 4u) << "all are read or written while others are";
  ASSERT_TRUE(plan->wait().ok());
}

// What only the sum's first reader wants of it is made beside it.
TEST_F(CudaPlanTest, a_branch_of_the_residual_runs_with_the_sum_it_is_of) {
  weights_set_.add("scales", {kDim});
  GraphBuilder g("branch", weights_set_.source());
  const Value norm = g.weight("norm", {kDim}), x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto product = [&](const char* name, Value v) { return g.linear(v, g.weight(name, {kDim, kDim})); };
  const Value sum = g.add(x, g.rms_norm(product("q", x), norm, 1e-6f));
  const Value branch = g.mul(g.scale(g.rms_norm(sum, {}, 1e-5f), 0.5f), g.weight("scales", {kDim}));
  const Value h = product("k", g.rms_norm(sum, norm, 1e-6f));
  take(g, g.add(h, product("v", branch)), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  EXPECT_EQ(kernels_of(*fake().last_replay),
            (std::vector<std::string>{"embed", "product", "add_normed", "product", "product", "product", "sample_parts",
                                      "sample_rows"}));
  const auto params = params_of<simt::AddNormedParams>((*fake().last_replay)[2]);
  EXPECT_NE(params.branch, nullptr);
  EXPECT_NE(params.branch, params.out);
  EXPECT_EQ(params.branch_factor, 0.5f);
  EXPECT_EQ(params.branch_eps, 1e-5f);
  ASSERT_TRUE(plan->wait().ok());
}

// Three segments of each of a gate's matrices, and five experts' with one each, for two blocks.
TEST_F(CudaPlanTest, an_odd_number_of_segments_is_shared_out_among_the_blocks_of_a_cluster) {
  constexpr int kWide = 768, kFf = 256, kExperts = 8;
  fake().n_multiprocessors = 132;
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
  take(g, g.add(x, g.moe_combine(experts(act, "down", {kExperts, kDim, kFf}), route.weights)), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  // Embedding, wide, the gate, the router, the experts' gates, their mix.
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  ASSERT_EQ(launches[5].kernel, "product");
  for (const size_t i : {2u, 5u}) {
    EXPECT_EQ(launches[i].attribute(kClusterDimension), 2u) << i;
    const simt::ProductClass c = params_of<simt::ProductParams>(launches[i]).classes[0];
    EXPECT_EQ(c.n_panels, kDim / simt::kPanelRows) << i;
    const int n_clusters = static_cast<int>(launches[i].config.grid_x) / 2;
    EXPECT_EQ(c.each * n_clusters + c.n_more, c.n_panels) << i;
  }
  ASSERT_TRUE(plan->wait().ok());
}

// As in Gemma 4: the router's row is of the residual's sum, so it need not wait for the dense part. Its logits are
// there when the experts' launch starts, which finds them before its wait.
TEST_F(CudaPlanTest, a_router_whose_row_is_there_runs_beside_the_gate_before_it) {
  constexpr int kExperts = 8;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("scales", {kDim}).add("router", {kExperts, kDim}).add("each", {kExperts, 2 * kDim, kDim}, q8);
  weights_set_.add("back", {kExperts, kDim, kDim}, q8);
  GraphBuilder g("gemma", weights_set_.source());
  const Value norm = g.weight("norm", {kDim}), x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto normed = [&](Value v) { return g.rms_norm(v, norm, 1e-6f); };
  const auto product = [&](const char* name, Value v) { return g.linear(v, g.weight(name, {kDim, kDim})); };
  const Value sum = g.add(x, normed(product("q", x)));
  const Value branch = g.mul(g.scale(g.rms_norm(sum, {}, 1e-5f), 0.5f), g.weight("scales", {kDim}));
  const Value h = normed(sum), dense = product("o", g.gated_act(Act::gelu, product("k", h), product("v", h)));
  const auto [ids, shares] = g.moe_route(g.linear(branch, g.weight("router", {kExperts, kDim})), {.n_used = 2});
  const Value each = g.moe_linear(normed(sum), {.weight = g.weight("each", {kExperts, 2 * kDim, kDim})}, ids);
  const Value act = g.gated_act(Act::gelu, g.slice(each, 0, kDim), g.slice(each, kDim, kDim));
  const Value back = g.moe_linear(act, {.weight = g.weight("back", {kExperts, kDim, kDim})}, ids);
  take(g, g.add(sum, normed(g.add(normed(dense), normed(g.moe_combine(back, shares))))), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  // q; the gate with the router; down; the experts; their mix; the head.
  EXPECT_EQ(kernels_of(launches),
            (std::vector<std::string>{"embed", "product", "add_normed", "product", "product", "product", "product",
                                      "add_normed", "product", "sample_parts", "sample_rows"}));
  const std::vector<simt::ProductShape> shapes = product_shapes(launches);
  EXPECT_EQ(of_each(&simt::ProductShape::spreads_other, shapes), (std::vector<int>{0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(of_each(&simt::ProductShape::starts_next_late, shapes), (std::vector<int>{0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(of_each(&simt::ProductShape::is_early, shapes), (std::vector<int>{0, 0, 0, 1, 1, 0}));
  EXPECT_EQ(of_each(&simt::ProductShape::finds_early, shapes), (std::vector<int>{0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(params_of<simt::ProductParams>(launches[3]).spread_x, params_of<simt::AddNormedParams>(launches[2]).branch);
  ASSERT_TRUE(plan->wait().ok());
}

// qwen3-0.6b's output: eight pairs of warps, eight segments.
TEST_F(CudaPlanTest, a_panel_that_a_block_multiplies_at_once_takes_no_cluster) {
  constexpr int kHeads = 2048, kRow = 1024;
  fake().n_multiprocessors = 132;
  const Format& q4 = *find_format("q4_k");
  weights_set_.add("heads", {kHeads, kDim}, *find_format("q8_0")).add("out", {kRow, kHeads}, q4);
  weights_set_.add("wide", {3 * kRow, kRow}, q4).add("down", {kDim, 3 * kRow}, q4);
  GraphBuilder g("small", weights_set_.source());
  const auto product = [&](Value v, const char* name, int64_t n_out, int64_t n_in) {
    return g.linear(v, g.weight(name, {n_out, n_in}));
  };
  const Value heads = product(g.embed(g.weight("embd", {kVocab, kDim})), "heads", kHeads, kDim);
  const Value wide = product(product(heads, "out", kRow, kHeads), "wide", 3 * kRow, kRow);
  take(g, product(wide, "down", kDim, 3 * kRow), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<simt::ProductShape> shapes = product_shapes(*fake().last_replay);
  EXPECT_EQ(of_each(&simt::ProductShape::n_ranks, shapes), (std::vector<int>{1, 1, 1, 2, 1}));
  ASSERT_TRUE(plan->wait().ok());
}

TEST_F(CudaPlanTest, experts_beside_a_product_leave_its_sum_to_it) {
  constexpr int kExperts = 8;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("router", {kExperts, kDim}).add("down", {kExperts, kDim, kDim}, q8);
  weights_set_.add("each", {kExperts, kDim, kDim}, q8);
  GraphBuilder g("beside", weights_set_.source());
  const Value x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto [ids, shares] = g.moe_route(g.linear(x, g.weight("router", {kExperts, kDim})), {.n_used = 2});
  const Value each = g.moe_linear(x, {.weight = g.weight("each", {kExperts, kDim, kDim})}, ids);
  const Value down = g.moe_linear(each, {.weight = g.weight("down", {kExperts, kDim, kDim})}, ids);
  const Value sum = g.add(g.moe_combine(down, shares), g.linear(x, g.weight("o", {kDim, kDim})));
  take(g, sum, {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<FakeLaunch>& launches = *fake().last_replay;
  int n_reading = 0;  // what the mix leaves is added to the product's
  for (size_t i = 1; i < launches.size(); ++i) {
    if (launches[i].kernel != "product" || launches[i - 1].kernel != "product") continue;
    const float* out = params_of<simt::ProductParams>(launches[i - 1]).parts[0].out;
    if (params_of<simt::ProductParams>(launches[i]).parts[0].added == out) ++n_reading;
  }
  EXPECT_EQ(n_reading, 1);
  EXPECT_EQ(std::ranges::count(kernels_of(launches), "product"), 5);  // router, experts, mix, product, head
  ASSERT_TRUE(plan->wait().ok());
}

TEST_F(CudaPlanTest, a_gate_and_up_in_one_matrix_of_experts_are_one_launch_in_a_step_of_one_row) {
  constexpr int kExperts = 8, kWide = 64;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("router", {kExperts, kDim});
  weights_set_.add("both", {kExperts, 2 * kWide, kDim}, q8).add("down", {kExperts, kDim, kWide}, q8);
  GraphBuilder g("halves", weights_set_.source());
  const Value x = g.embed(g.weight("embd", {kVocab, kDim}));
  const Value h = g.rms_norm(x, g.weight("norm", {kDim}), 1e-6f);
  const auto [ids, shares] = g.moe_route(g.linear(h, g.weight("router", {kExperts, kDim})), {.n_used = 2});
  const Value both = g.moe_linear(h, {.weight = g.weight("both", {kExperts, 2 * kWide, kDim})}, ids);
  const Value act = g.gated_act(Act::gelu, g.slice(both, 0, kWide), g.slice(both, kWide, kWide));
  const Value out = g.moe_linear(act, {.weight = g.weight("down", {kExperts, kDim, kWide})}, ids);
  take(g, g.add(x, g.moe_combine(out, shares)), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 4, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  // The router, the experts' gate and up, their down with the sums.
  EXPECT_EQ(kernels_of(*fake().last_replay), (std::vector<std::string>{"embed", "product", "product", "product",
                                                                       "product", "sample_parts", "sample_rows"}));
  // Both read the router's logits themselves: the sums need not wait for who found the experts first.
  const auto logits_of = [&](size_t i) {
    return reinterpret_cast<const simt::ProductParams*>((*fake().last_replay)[i].params.data())->route.partial;
  };
  EXPECT_NE(logits_of(2), nullptr);
  EXPECT_EQ(logits_of(3), logits_of(2));
  ASSERT_TRUE(plan->wait().ok());
  start(*plan, 0, 3);
  EXPECT_EQ(std::ranges::count(kernels_of(*fake().last_replay), "gated_act"), 1);
  ASSERT_TRUE(plan->wait().ok());
}

TEST_F(CudaPlanTest, every_kernel_after_the_first_may_start_early) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 4, .max_seqs = 1, .max_outputs = 1});
  for (const std::vector<FakeLaunch>& graph : fake().graphs) {
    for (size_t i = 0; i < graph.size(); ++i) EXPECT_EQ(graph[i].attribute(kProgrammaticLaunch), i == 0 ? 0u : 1u);
  }
}

// Experts of a row that `make_row` makes of the normed one; who of the products starts the next launch late, and who
// reads something before its wait: the router's, the experts', their mix, the head's.
class CudaEarlyTest : public CudaPlanTest {
 protected:
  struct Starts {
    std::vector<int> late, early;
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
    const auto [ids, shares] = g.moe_route(logits, {.n_used = 2});
    const Value each = g.moe_linear(row, {.weight = g.weight("each", {kExperts, kDim, kDim})}, ids);
    const Value down = g.moe_linear(each, {.weight = g.weight("down", {kExperts, kDim, kDim})}, ids);
    take(g, g.add(x, g.moe_combine(down, shares)), {});
    const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
    start(*plan, 0, 1);
    const std::vector<simt::ProductShape> shapes = product_shapes(*fake().last_replay);
    EXPECT_TRUE(plan->wait().ok());
    return {of_each(&simt::ProductShape::starts_next_late, shapes), of_each(&simt::ProductShape::is_early, shapes)};
  }
};

TEST_F(CudaEarlyTest, experts_read_their_row_and_a_mix_the_logits_before_they_wait) {
  EXPECT_EQ(starts([](GraphBuilder&, Value h) { return h; }), (Starts{{1, 1, 0, 0}, {0, 1, 1, 0}}));
}

TEST_F(CudaEarlyTest, experts_wait_for_a_row_that_the_routers_launch_writes) {
  const auto product = [](GraphBuilder& g, Value h) { return g.linear(h, g.weight("other", {kDim, kDim})); };
  EXPECT_EQ(starts(product), (Starts{{1, 1, 0, 0}, {0, 0, 1, 0}}));
}

TEST_F(CudaEarlyTest, experts_wait_for_a_row_made_by_a_launch_that_starts_them_at_once) {
  const auto scaled = [](GraphBuilder& g, Value h) { return g.scale(h, 2.0f); };
  EXPECT_EQ(starts(scaled), (Starts{{1, 1, 0, 0}, {0, 0, 1, 0}}));
}

// The router's launch makes the sum that the experts' norm reads, so that they cannot read it before their wait.
TEST_F(CudaPlanTest, experts_wait_for_a_sum_that_the_routers_launch_makes) {
  constexpr int kExperts = 8;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("router", {kExperts, kDim});
  weights_set_.add("each", {kExperts, kDim, kDim}, q8).add("down", {kExperts, kDim, kDim}, q8);
  GraphBuilder g("experts", weights_set_.source());
  const Value norm = g.weight("norm", {kDim}), x = g.embed(g.weight("embd", {kVocab, kDim}));
  const auto normed = [&](Value v) { return g.rms_norm(v, norm, 1e-6f); };
  const Value sum = g.add(x, normed(g.linear(x, g.weight("q", {kDim, kDim}))));
  const auto [ids, shares] = g.moe_route(g.linear(normed(sum), g.weight("router", {kExperts, kDim})), {.n_used = 2});
  const Value each = g.moe_linear(normed(sum), {.weight = g.weight("each", {kExperts, kDim, kDim})}, ids);
  const Value down = g.moe_linear(each, {.weight = g.weight("down", {kExperts, kDim, kDim})}, ids);
  take(g, g.add(sum, g.moe_combine(down, shares)), {});
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  const std::vector<simt::ProductShape> shapes = product_shapes(*fake().last_replay);
  EXPECT_EQ(of_each(&simt::ProductShape::input, shapes),
            (std::vector<int>{simt::kPlainRow, simt::kSummedRow, simt::kNormedRow, simt::kPlainRow, simt::kPlainRow}));
  EXPECT_EQ(of_each(&simt::ProductShape::starts_next_late, shapes), (std::vector<int>{0, 1, 1, 0, 0}));
  EXPECT_EQ(of_each(&simt::ProductShape::is_early, shapes), (std::vector<int>{0, 0, 0, 1, 0}));
  ASSERT_TRUE(plan->wait().ok());
}

// Slots of a ring: gemma4-31b's head, whose pairs have one or two each, and a ring that has two for each and a bit
// more.
TEST(ProductShapeTest, pairs_have_as_many_slots_each_or_all_there_is_room_for) {
  simt::ProductShape shape{};
  shape.n_pairs = 6;
  shape.ring_bytes = 74496;
  EXPECT_EQ(simt::slots_of(shape, 6720), 11);
  shape.ring_bytes = 86016;
  EXPECT_EQ(simt::slots_of(shape, 6720), 12);
  EXPECT_EQ(simt::slots_of(shape, 6144), 12);
  EXPECT_EQ(simt::slots_of(shape, 20000), 6);
  EXPECT_EQ(simt::slots_of(shape, 1000), 30);
}

// A multiprocessor has 228 KB of shared memory, and each block takes one more than it asks for.
TEST_F(CudaPlanTest, two_launches_of_one_row_share_a_multiprocessor_and_never_two_blocks_of_one) {
  constexpr unsigned kAll = 228 << 10, kOwn = 1 << 10;
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
  start(*plan, 0, 1);
  int n_seen = 0;
  unsigned before = 0;  // of the launch before, if it has a block on each
  for (const FakeLaunch& launch : *fake().last_replay) {
    const unsigned bytes = launch.config.shared_bytes + kOwn;
    EXPECT_LE(bytes + before, kAll) << launch.kernel;
    const bool is_on_all = launch.config.grid_x >= static_cast<unsigned>(fake().n_multiprocessors);
    EXPECT_GT(2 * bytes + (is_on_all ? before : kAll / 3), kAll) << launch.kernel;
    before = is_on_all ? bytes : 0;
    if (launch.kernel != "product" && launch.kernel != "attend_one") continue;
    EXPECT_EQ(launch.config.grid_x, static_cast<unsigned>(fake().n_multiprocessors)) << launch.kernel;
    EXPECT_LE(launch.config.block_x, 512u) << launch.kernel;
    ++n_seen;
  }
  EXPECT_EQ(n_seen, 7);
  ASSERT_TRUE(plan->wait().ok());
}

// A wide matrix with few rows, a router beside a gate, a router alone: blocks and clusters of their products.
TEST_F(CudaPlanTest, few_panels_are_taken_by_clusters_and_a_router_leaves_blocks_to_others) {
  constexpr int kWide = 4096, kExperts = 512;
  const Format& q8 = *find_format("q8_0");
  weights_set_.add("wide", {kWide, kDim}, q8).add("narrow", {kDim, kWide}, q8).add("many", {kExperts, kWide});
  weights_set_.add("experts", {kExperts, 32, kWide}, q8).add("back", {kExperts, kWide, 32}, q8);
  for (const int n : {4, 5, 132}) {
    fake().n_multiprocessors = n;
    GraphBuilder g("clusters", weights_set_.source());
    const Value x = g.embed(g.weight("embd", {kVocab, kDim}));
    const Value wide = g.linear(x, g.weight("wide", {kWide, kDim}));
    const auto [ids, shares] = g.moe_route(g.linear(wide, g.weight("many", {kExperts, kWide})), {.n_used = 2});
    const Value each = g.moe_linear(wide, {.weight = g.weight("experts", {kExperts, 32, kWide})}, ids);
    const Value back = g.moe_linear(each, {.weight = g.weight("back", {kExperts, kWide, 32})}, ids);
    take(g, g.linear(g.moe_combine(back, shares), g.weight("narrow", {kDim, kWide})), {});
    const std::unique_ptr<Plan> plan = compile({.max_tokens = 1, .max_seqs = 1, .max_outputs = 1});
    start(*plan, 0, 1);
    bool has_cluster = false;
    for (const FakeLaunch& launch : *fake().last_replay) {
      if (launch.kernel != "product") continue;
      const unsigned cluster = std::max(1u, launch.attribute(kClusterDimension));
      EXPECT_EQ(launch.config.grid_x, static_cast<unsigned>(n) / cluster * cluster);
      const auto params = params_of<simt::ProductParams>(launch);
      bool is_all_spread = true;
      for (int i = 0; i < params.n_classes; ++i) is_all_spread = is_all_spread && params.classes[i].is_spread != 0;
      EXPECT_FALSE(is_all_spread && cluster > 1);
      has_cluster = has_cluster || cluster > 1;
    }
    EXPECT_TRUE(has_cluster);
    ASSERT_TRUE(plan->wait().ok());
  }
}

}  // namespace
}  // namespace zinc::cuda
