// What a plan refuses; that it computes rightly is the conformance suite's.
#include <gtest/gtest.h>

#include <limits>

#include "backend/backend.h"
#include "graph/graph_builder.h"
#include "tests/support/says.h"
#include "tests/support/weight_set.h"

namespace zinc::cpu {
namespace {

// Why the graph does not compile; empty: it does.
std::string refusal(const Graph& graph, const Bucket& bucket) {
  const std::unique_ptr<Backend> backend = std::move(open_backend("cpu", 1).value());
  const Graph* const uploaded = &graph;
  const auto weights = std::move(backend->upload({&uploaded, 1}, [](auto) {}).value());
  const CacheSizes sizes{.n_pages = {}, .n_slots = 1, .kv_format = find_format("f16")};
  const auto cache = std::move(backend->allocate_cache(graph.caches(), sizes).value());
  const Result<std::unique_ptr<Plan>> plan = backend->compile(graph, *weights, *cache, bucket);
  return plan.ok() ? "" : plan.error().message;
}

TEST(CpuPlan, more_convolution_taps_than_it_has_are_refused_by_number) {
  for (const int64_t n_taps : {16, 17}) {
    WeightSet set;
    set.add("embd", {40, 32}).add("conv", {32, n_taps});
    GraphBuilder g("taps", set.source());
    const Value x = g.embed(g.weight("embd", {40, 32}));
    const Value y = g.short_conv(x, g.weight("conv", {32, n_taps}), {.cache_layer = 0});
    g.logits(g.linear(g.rows(y), g.weight("embd", {40, 32})));
    const std::string why = refusal(g.finish().value(), {.max_tokens = 2, .max_seqs = 1, .max_outputs = 1});
    if (n_taps == 16) {
      EXPECT_EQ(why, "");
    } else {
      EXPECT_TRUE(says(why, {"the cpu backend", "short_conv", "16 taps", "17"})) << why;
    }
  }
}

TEST(CpuPlan, memory_that_is_refused_is_an_error_that_says_for_what) {
  constexpr int64_t kWidth = 1 << 17;  // times the tokens below more than any machine can address
  WeightSet set;
  set.add("head", {1, kWidth});
  GraphBuilder g("wide", set.source());
  g.logits(g.linear(g.rows(g.hidden_in(kWidth)), g.weight("head", {1, kWidth})));
  const Bucket bucket{.max_tokens = std::numeric_limits<int>::max(), .max_seqs = 1, .max_outputs = 1};
  const std::string why = refusal(g.finish().value(), bucket);
  EXPECT_TRUE(says(why, {"bytes for activations were refused"})) << why;
}

}  // namespace
}  // namespace zinc::cpu
