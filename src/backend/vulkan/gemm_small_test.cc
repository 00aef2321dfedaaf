// Matmuls of 2 to 64 rows against those of one row and of many, bit for bit, for every format: gemm_small.comp,
// gemm_floats.comp, linear.comp and gemm*.comp. On a GPU, or on the emulated one; skipped without.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "backend/gpu/panel_format.h"
#include "tests/support/conformance.h"
#include "tests/support/tested_backends.h"

namespace zinc::vulkan {
namespace {

using Floats = std::vector<float>;
constexpr int64_t kIn = 2304;  // 9 segments: one of the 8 K splits has two
constexpr int kMaxRows = 72;   // more than gemm_small.comp takes

// A dense matmul, and two of routed experts that share an input row or have one each: the first has more tiles than
// there are workgroups, the second, of three segments in two K splits, several panels per workgroup.
Graph make_graph(conformance::CaseBuilder& m, const Format& format, std::shared_ptr<WeightSet>& weights) {
  constexpr int64_t kExperts = 9, kUsed = 2, kFf = 768;
  GraphBuilder& g = m.g();
  const Value x = m.inputs({{kIn}})[0];
  const Value dense = g.linear(x, m.weight({40, kIn}, format), m.weight({40}));
  const Value ids = g.moe_route(g.linear(x, m.weight({kExperts, kIn})), {.n_used = kUsed}).ids;
  const Value ff = g.moe_linear(x, {m.weight({kExperts, kFf, kIn}, format)}, ids);
  const Value down = g.moe_linear(ff, {m.weight({kExperts, 36, kFf}, format)}, ids);
  conformance::Case c = m.finish(g.concat(dense, g.flatten(down)), {}, {});
  weights = c.weights;
  return std::move(c.graph);
}

class VulkanFewRows : public testing::TestWithParam<std::tuple<const BackendInfo*, const gpu::PanelFormat*>> {
 protected:
  void SetUp() override {
    const auto& [info, format] = GetParam();
    if (!info->is_available()) GTEST_SKIP() << info->name << " is not available on this machine";
    backend_ = std::move(info->open(0).value());
    conformance::CaseBuilder builder("few rows");
    graph_ = make_graph(builder, *find_format(format->name), source_);
    const Graph* const graph = &graph_;
    weights_ = std::move(backend_->upload({&graph, 1}, [](auto) {}).value());
    cache_ = std::move(backend_->allocate_cache(graph_.caches(), {.n_pages = {}, .kv_format = &k_f32}).value());
    plan_ = std::move(
        backend_->compile(graph_, *weights_, *cache_, {.max_tokens = kMaxRows, .max_outputs = kMaxRows}).value());
    ASSERT_TRUE(plan_->wait_until_prepared().ok());  // each step runs its own class
    std::mt19937 random(1);
    std::uniform_real_distribution<float> even(-1, 1);
    x_.resize(static_cast<size_t>(kMaxRows * kIn));
    for (float& x : x_) x = even(random);
  }

  Floats run(int first, int n_rows) {
    const std::vector<int32_t> tokens(static_cast<size_t>(n_rows)), seq_begin = {0, n_rows}, slots = {0};
    std::vector<int32_t> rows(tokens.size());
    std::iota(rows.begin(), rows.end(), 0);
    plan_->start({.tokens = tokens,
                  .positions = rows,
                  .seq_begin = seq_begin,
                  .slots = slots,
                  .page_tables = {},
                  .output_rows = rows,
                  .logit_rows = rows,
                  .hidden = std::span(x_).subspan(static_cast<size_t>(first * kIn), tokens.size() * kIn)});
    const StepOutput output = plan_->wait().value();
    return {output.logits.begin(), output.logits.end()};
  }

  std::unique_ptr<Backend> backend_;
  std::shared_ptr<WeightSet> source_;
  Graph graph_;
  std::unique_ptr<DeviceWeights> weights_;
  std::unique_ptr<CacheMemory> cache_;
  std::unique_ptr<Plan> plan_;
  Floats x_;
};

TEST_P(VulkanFewRows, have_the_bits_of_one_row_and_of_many) {
  const Floats all = run(0, kMaxRows);
  const size_t width = all.size() / kMaxRows;
  const auto rows_of_all = [&](int first, int n) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(first) * width);
    return Floats(begin, begin + static_cast<ptrdiff_t>(static_cast<size_t>(n) * width));
  };
  for (const int row : {0, 1, 33, kMaxRows - 1}) EXPECT_EQ(run(row, 1), rows_of_all(row, 1)) << "row " << row;
  for (const int n_rows : {2, 3, 8, 9, 17, 33, 64}) {
    const int first = kMaxRows - n_rows;
    EXPECT_TRUE(run(first, n_rows) == rows_of_all(first, n_rows)) << n_rows << " rows";
  }
}

std::vector<const BackendInfo*> vulkan_backends() {
  std::vector<const BackendInfo*> all;
  if (const Result<const BackendInfo*> vulkan = find_backend("vulkan"); vulkan.ok()) all.push_back(vulkan.value());
  if (emulated_vulkan()) all.push_back(emulated_vulkan());
  return all;
}
std::vector<const gpu::PanelFormat*> formats() {
  std::vector<const gpu::PanelFormat*> formats;
  for (const gpu::PanelFormat* const* f = gpu::kPanelFormats; *f; ++f) formats.push_back(*f);
  return formats;
}
INSTANTIATE_TEST_SUITE_P(All, VulkanFewRows,
                         testing::Combine(testing::ValuesIn(vulkan_backends()), testing::ValuesIn(formats())),
                         [](const auto& info) {
                           std::string name =
                               fmt::format("{}_{}", std::get<0>(info.param)->name, std::get<1>(info.param)->name);
                           std::ranges::replace(name, ':', '_');
                           return name;
                         });

}  // namespace
}  // namespace zinc::vulkan
