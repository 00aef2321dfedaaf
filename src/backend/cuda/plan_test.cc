// The host side of steps, on a driver that only counts (fake_driver.h).
#include "backend/cuda/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>

#include "backend/cuda/fake_driver_api.h"
#include "base/thread_pool.h"
#include "graph/graph_builder.h"
#include "tests/support/weight_set.h"

namespace zinc::cuda {
namespace {

FakeDriver& fake() { return FakeDriver::current(); }

constexpr int kDim = 64, kVocab = 96, kWindow = 40;

// Two layers, one of them with a window, so that there are two page groups.
class CudaPlanTest : public testing::Test {
 protected:
  CudaPlanTest() : threads_(1) {
    fake() = FakeDriver();
    weights_set_.add("embd", {kVocab, kDim}).add("norm", {kDim});
    for (const char* name : {"q", "k", "v", "o"}) weights_set_.add(name, {kDim, kDim}, *find_format("q8_0"));
    GraphBuilder g("fake", weights_set_.source());
    Value x = g.embed(g.weight("embd", {kVocab, kDim}));
    for (const int layer : {0, 1}) {
      const Value h = g.rms_norm(x, g.weight("norm", {kDim}), 1e-6f);
      const auto heads = [&](const char* name) { return g.heads(g.linear(h, g.weight(name, {kDim, kDim})), 2); };
      const Value q = heads("q"), k = heads("k"), v = heads("v");
      const Value a = g.attention({q, k, v}, {.cache_layer = layer, .scale = 1, .window = layer == 0 ? 0 : kWindow});
      x = g.add(x, g.linear(a, g.weight("o", {kDim, kDim})));
    }
    take(g, x, {20, 20});
  }

  // A graph that ends with x, and pages of its groups of layers.
  void take(GraphBuilder& g, Value x, std::vector<int> n_pages) {
    g.logits(g.linear(g.rows(x), g.weight("embd", {kVocab, kDim})));
    cache_.reset();
    weights_.reset();
    n_groups_ = n_pages.size();
    graph_ = std::move(g.finish().value());
    device_ = std::move(Device::open(FakeDriver::api(), 0, [](const KernelProgram& program) {
                          const std::string& shape = program.shape;  // stands for code
                          return std::vector<char>(shape.c_str(), shape.c_str() + shape.size() + 1);
                        }).value());
    const Graph* const graph = &graph_;
    weights_ = std::move(CudaWeights::upload({&graph, 1}, *device_, threads_, [](auto) {}).value());
    const CacheSizes sizes{.n_pages = std::move(n_pages), .n_slots = 3, .kv_format = find_format("f16")};
    cache_ = std::move(CudaCache::allocate(graph_.caches(), sizes, *device_).value());
  }

  std::unique_ptr<Plan> compile(const Bucket& bucket) {
    return std::move(CudaPlan::compile(graph_, *weights_, *cache_, *device_, bucket).value());
  }

  // One sequence, tokens from `position` on; its pages count down from 19.
  void start(Plan& plan, int position, int n_tokens, std::vector<int32_t> logit_rows = {}) {
    tokens_.assign(static_cast<size_t>(n_tokens), 1);
    positions_.resize(tokens_.size());
    std::iota(positions_.begin(), positions_.end(), position);
    pages_.resize(20);
    std::iota(pages_.rbegin(), pages_.rend(), 0);
    seq_begin_ = {0, n_tokens};
    output_rows_ = {n_tokens - 1};
    logit_rows_ = std::move(logit_rows);
    tables_.assign(n_groups_, PageTable{pages_, 20});
    plan.start({.tokens = tokens_,
                .positions = positions_,
                .seq_begin = seq_begin_,
                .slots = slots_,
                .page_tables = tables_,
                .output_rows = output_rows_,
                .draws = draws_,
                .logit_rows = logit_rows_,
                .hidden = {}});
  }

  static std::vector<std::string> kernels_of(const std::vector<FakeLaunch>& graph) {
    std::vector<std::string> names;
    for (const FakeLaunch& launch : graph) names.push_back(launch.kernel);
    return names;
  }

  template <class P>
  static P params_of(const FakeLaunch& launch) {
    P params;
    std::memcpy(&params, launch.params.data(), sizeof(params));
    return params;
  }

  // What the launches of product.cu are compiled for, in their order.
  static std::vector<simt::ProductShape> product_shapes(const std::vector<FakeLaunch>& graph) {
    std::vector<simt::ProductShape> shapes;
    for (const FakeLaunch& launch : graph) {
      if (launch.kernel != "product") continue;
      std::array<int, sizeof(simt::ProductShape) / sizeof(int)> numbers{};
      std::istringstream text(launch.code.substr(launch.code.find('{') + 1));
      char comma;
      for (int& number : numbers) text >> number >> comma;
      EXPECT_TRUE(text) << launch.code;
      shapes.push_back(std::bit_cast<simt::ProductShape>(numbers));
    }
    return shapes;
  }
  static std::vector<int> of_each(int simt::ProductShape::*what, const std::vector<simt::ProductShape>& shapes) {
    std::vector<int> numbers;
    for (const simt::ProductShape& shape : shapes) numbers.push_back(shape.*what);
    return numbers;
  }

  static simt::Step step_of(const std::vector<FakeLaunch>& graph) {
    for (const FakeLaunch& launch : graph) {
      if (launch.kernel != "embed") continue;
      return params_of<simt::EmbedParams>(launch).step;
    }
    return {};
  }

  ThreadPool threads_;
  WeightSet weights_set_;
  size_t n_groups_ = 0;
  Graph graph_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<CudaWeights> weights_;
  std::unique_ptr<CudaCache> cache_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_, seq_begin_, slots_ = {2}, output_rows_, logit_rows_;
  std::vector<PageId> pages_;
  std::vector<PageTable> tables_;
  std::vector<TokenDraw> draws_;
};

TEST_F(CudaPlanTest, a_step_is_one_upload_one_replay_and_the_copies_asked_for) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 16, .max_seqs = 2, .max_outputs = 16});
  start(*plan, 0, 5, {0});
  ASSERT_TRUE(plan->wait().ok());  // from now on nothing is new
  const FakeDriver before = fake();
  for (int i = 0; i < 10; ++i) {
    start(*plan, 5 + i, 1, {0});
    ASSERT_TRUE(plan->wait().ok());
  }
  EXPECT_EQ(fake().n_allocations, before.n_allocations);
  EXPECT_EQ(fake().n_copies_in - before.n_copies_in, 10);
  EXPECT_EQ(fake().n_replays - before.n_replays, 10);
  EXPECT_EQ(fake().n_copies_out - before.n_copies_out, 20);  // the sampled token, the logits
  EXPECT_EQ(fake().n_event_waits - before.n_event_waits, 10);
  EXPECT_EQ(fake().n_stream_waits, before.n_stream_waits);
}

TEST_F(CudaPlanTest, of_drawn_tokens_nothing_but_the_token_leaves_the_device) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 16, .max_seqs = 2, .max_outputs = 2});
  start(*plan, 0, 5);
  ASSERT_TRUE(plan->wait().ok());
  const FakeDriver before = fake();
  draws_ = {{.temperature = 0.5f, .top_k = 40, .top_p = 0.9f, .min_p = 0.25f, .share = 0.75}};
  start(*plan, 5, 1);
  for (int i = 1; i < 10; ++i) {  // two steps in flight
    start(*plan, 5 + i, 1);
    ASSERT_TRUE(plan->wait().ok());
  }
  ASSERT_TRUE(plan->wait().ok());
  EXPECT_EQ(fake().n_allocations, before.n_allocations);
  EXPECT_EQ(fake().n_copies_in - before.n_copies_in, 10);
  EXPECT_EQ(fake().n_replays - before.n_replays, 10);
  EXPECT_EQ(fake().n_copies_out - before.n_copies_out, 10);
  EXPECT_EQ(fake().n_event_waits - before.n_event_waits, 10);
  EXPECT_EQ(fake().n_stream_waits, before.n_stream_waits);

  const FakeLaunch& last = fake().last_replay->back();
  ASSERT_EQ(last.kernel, "sample_rows");
  const auto params = params_of<simt::SampleParams>(last);
  const auto number = [&](simt::DrawField field) { return std::bit_cast<float>(params.draws[field]); };
  EXPECT_EQ(params.step.counts[simt::kDraws], 1);
  EXPECT_EQ(number(simt::kInvTemperature), 2.0f);
  EXPECT_EQ(params.draws[simt::kTopK], 40);
  EXPECT_EQ(number(simt::kTopP), 0.9f);
  EXPECT_EQ(number(simt::kLogMinP), std::log(0.25f));
  const uint64_t share = uint64_t{static_cast<uint32_t>(params.draws[simt::kShareHigh])} << 32 |
                         static_cast<uint32_t>(params.draws[simt::kShareLow]);
  EXPECT_EQ(std::bit_cast<double>(share), 0.75);
}

TEST_F(CudaPlanTest, the_smallest_class_that_fits_is_replayed) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 100, .max_seqs = 2, .max_outputs = 100});
  std::vector<unsigned> sizes;
  for (const int n_tokens : {1, 2, 4, 5, 8, 9, 33, 100}) {
    start(*plan, 0, n_tokens);
    ASSERT_TRUE(plan->wait().ok());
    for (const FakeLaunch& launch : *fake().last_replay) {
      if (launch.kernel == "embed") sizes.push_back(launch.config.grid_x);  // one block per token
    }
  }
  EXPECT_EQ(sizes, (std::vector<unsigned>{1, 4, 4, 8, 8, 32, 100, 100}));
}

TEST_F(CudaPlanTest, small_steps_fuse_and_large_ones_use_matrix_cores) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 64, .max_seqs = 2, .max_outputs = 64});
  start(*plan, 0, 1);
  const std::vector<std::string> layer = {"product", "attend_one", "product"};
  std::vector<std::string> expected = {"embed"};
  for (int i = 0; i < 2; ++i) expected.insert(expected.end(), layer.begin(), layer.end());
  for (const char* kernel : {"product", "sample_parts", "sample_rows"}) expected.emplace_back(kernel);
  EXPECT_EQ(kernels_of(*fake().last_replay), expected);
  ASSERT_TRUE(plan->wait().ok());
  start(*plan, 0, 60);
  const std::vector<std::string> large = kernels_of(*fake().last_replay);
  EXPECT_EQ(std::ranges::count(large, "gemm_wide"), 4);  // q, k, v together and o, of both layers
  EXPECT_EQ(std::ranges::count(large, "norm_heads"), 2);
  ASSERT_TRUE(plan->wait().ok());
}

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
  EXPECT_EQ(kernels, (std::vector<std::string>{"embed", "product", "add_normed", "product", "add_normed", "product",
                                               "sample_parts", "sample_rows"}));
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

TEST_F(CudaPlanTest, only_the_pages_a_step_needs_are_uploaded) {
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 16, .max_seqs = 2, .max_outputs = 16});
  start(*plan, 200, 3);
  const simt::Step step = step_of(*fake().last_replay);
  EXPECT_EQ(step.counts[simt::kTokens], 3);
  EXPECT_EQ(step.counts[simt::kSeqs], 1);
  EXPECT_EQ(step.slots[0], 2);
  // Positions 0 to 202 are in columns 0 to 6; a window of 40 from position 200 begins at 161, in column 5.
  EXPECT_EQ(step.counts[simt::kStride], 7);
  EXPECT_EQ(step.counts[simt::kStride + 1], 2);
  EXPECT_EQ(step.first_column[0], 0);
  EXPECT_EQ(step.first_column[step.max_seqs], 5);
  EXPECT_EQ(step.counts[step.counts[simt::kEntries] + 6], 13);
  EXPECT_EQ(step.counts[step.counts[simt::kEntries + 1]], 14);
  ASSERT_TRUE(plan->wait().ok());
}

TEST_F(CudaPlanTest, every_program_is_compiled_once_before_the_first_launch_is_captured) {
  std::mutex mutex;
  std::map<std::string, int> n_asked;
  const size_t n_graphs = fake().graphs.size();
  bool is_early = true;
  const std::unique_ptr<Device> first = std::move(device_);  // weights and cache are its
  device_ = std::move(Device::open(FakeDriver::api(), 0, [&](const KernelProgram& program) {
                        const std::lock_guard lock(mutex);
                        ++n_asked[program.text()];
                        is_early = is_early && fake().graphs.size() == n_graphs;
                        return std::vector<char>(1);
                      }).value());
  const std::unique_ptr<Plan> plan = compile({.max_tokens = 64, .max_seqs = 2, .max_outputs = 64});
  EXPECT_GT(n_asked.size(), 5u);
  for (const auto& [program, n] : n_asked) EXPECT_EQ(n, 1) << program;
  EXPECT_TRUE(is_early);
}

TEST_F(CudaPlanTest, attention_is_compiled_for_how_keys_and_values_are_kept) {
  std::unique_ptr<Device> first = std::move(device_);  // weights are its
  int number = 0;                                      // of the KvFormat
  for (const char* format : {"f16", "q8_0", "fp8"}) {
    ++number;
    std::mutex mutex;
    int n_programs = 0;
    device_ = std::move(
        Device::open(FakeDriver::api(), 0, [&](const KernelProgram& program) {
          const std::lock_guard lock(mutex);
          if (!program.file.starts_with("att")) return std::vector<char>(1);
          const std::string kept = fmt::format("kKept = static_cast<KvFormat>({});", number),
                            shape = fmt::format("kShape = {{{}, ", number);
          EXPECT_TRUE(program.shape.find(kept) != std::string::npos || program.shape.find(shape) != std::string::npos)
              << format << ": " << program.file << " " << program.shape;
          ++n_programs;
          return std::vector<char>(1);
        }).value());
    const CacheSizes sizes{.n_pages = {20, 20}, .n_slots = 3, .kv_format = find_format(format)};
    cache_ = std::move(CudaCache::allocate(graph_.caches(), sizes, *device_).value());
    EXPECT_EQ(cache_->page_bytes(0), page_bytes(page_groups(graph_.caches())[0], graph_.caches(), *sizes.kv_format));
    EXPECT_NE(compile({.max_tokens = 64, .max_seqs = 2, .max_outputs = 64}), nullptr);
    EXPECT_GE(n_programs, 4) << format;  // attention, attention_units, attend_one for each window
    cache_.reset();
  }
  device_ = std::move(first);
}

TEST_F(CudaPlanTest, keys_and_values_that_cannot_be_kept_so_are_refused_with_what_can) {
  const CacheSizes sizes{.n_pages = {20, 20}, .n_slots = 3, .kv_format = find_format("q4_0")};
  const auto cache = CudaCache::allocate(graph_.caches(), sizes, *device_);
  ASSERT_FALSE(cache.ok());
  EXPECT_NE(cache.error().message.find("'q4_0'; it has f32, f16, q8_0 and fp8"), std::string::npos)
      << cache.error().message;
}

TEST_F(CudaPlanTest, memory_that_does_not_suffice_is_an_error_that_says_for_what) {
  fake().free_bytes = 1000;
  const Result<std::unique_ptr<Plan>> plan =
      CudaPlan::compile(graph_, *weights_, *cache_, *device_, {.max_tokens = 64, .max_seqs = 2, .max_outputs = 64});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(plan.error().message.find("activations"), std::string::npos) << plan.error().message;
  EXPECT_NE(plan.error().message.find("1000 of"), std::string::npos) << plan.error().message;
}

TEST(CudaDevice, a_gpu_older_than_turing_is_refused_by_name) {
  fake() = FakeDriver();
  fake().major = 6;
  fake().minor = 1;
  const auto device = Device::open(FakeDriver::api(), 0, [](const KernelProgram&) { return std::vector<char>(1); });
  ASSERT_FALSE(device.ok());
  EXPECT_NE(device.error().message.find("Fake GPU has compute capability 6.1"), std::string::npos)
      << device.error().message;
}

TEST(CudaDriver, what_is_missing_is_named) {
  const Result<const DriverApi*> api = load_driver();
  if (api.ok()) GTEST_SKIP() << "there is a driver here";
  EXPECT_NE(api.error().message.find("NVIDIA driver"), std::string::npos) << api.error().message;
}

}  // namespace
}  // namespace zinc::cuda
