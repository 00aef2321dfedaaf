// Errors when compiling a plan; results are tested by the conformance suite.
#include <gtest/gtest.h>

#include <limits>

#include "backend/backend.h"
#include "graph/graph_builder.h"
#include "tests/support/contains_all.h"
#include "tests/support/weight_set.h"

namespace zinc::cpu {
namespace {

// The compile error; empty: none.
std::string compile_error(const Graph& graph, const Bucket& bucket) {
  const std::unique_ptr<Backend> backend = std::move(open_backend("cpu", 1).value());
  const Graph* const uploaded = &graph;
  const auto weights = std::move(backend->upload({&uploaded, 1}, [](auto) {}).value());
  const CacheSizes sizes{.n_pages = {}, .n_slots = 1, .kv_format = find_format("f16")};
  const auto cache = std::move(backend->allocate_cache(graph.caches(), sizes).value());
  const Result<std::unique_ptr<Plan>> plan = backend->compile(graph, *weights, *cache, bucket);
  return plan.ok() ? "" : plan.error().message;
}

TEST(CpuPlan, too_many_convolution_taps_are_an_error_that_names_the_limit) {
  for (const int64_t n_taps : {16, 17}) {
    WeightSet set;
    set.add("embd", {40, 32}).add("conv", {32, n_taps});
    GraphBuilder g("taps", set.source());
    const Value x = g.embed(g.weight("embd", {40, 32}));
    const Value y = g.short_conv(x, g.weight("conv", {32, n_taps}), {.cache_layer = 0});
    g.logits(g.linear(g.rows(y), g.weight("embd", {40, 32})));
    const std::string error = compile_error(g.finish().value(), {.max_tokens = 2, .max_seqs = 1, .max_outputs = 1});
    if (n_taps == 16) {
      EXPECT_EQ(error, "");
    } else {
      EXPECT_TRUE(contains_all(error, {"the cpu backend", "short_conv", "16 taps", "17"})) << error;
    }
  }
}

TEST(CpuPlan, out_of_memory_is_an_error_that_names_the_buffer) {
  constexpr int64_t kWidth = 1 << 17;  // times max_tokens: more than any machine can address
  WeightSet set;
  set.add("head", {1, kWidth});
  GraphBuilder g("wide", set.source());
  g.logits(g.linear(g.rows(g.hidden_in(kWidth)), g.weight("head", {1, kWidth})));
  const Bucket bucket{.max_tokens = std::numeric_limits<int>::max(), .max_seqs = 1, .max_outputs = 1};
  const std::string error = compile_error(g.finish().value(), bucket);
  EXPECT_TRUE(contains_all(error, {"cannot allocate", "bytes for activations"})) << error;
}

}  // namespace
}  // namespace zinc::cpu
