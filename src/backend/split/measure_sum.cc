#include "backend/split/measure_sum.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "graph/graph_builder.h"

namespace zinc::split {
namespace {

constexpr int64_t kLogits = 32;  // a graph has some
constexpr int kRuns = 32;

// Hidden states that come back as they are, and logits that no step asks for.
Result<Graph> pass_through_graph(int64_t n_floats, const TensorView& head) {
  GraphBuilder g("link", [&](std::string_view name) { return name == "head" ? &head : nullptr; });
  const Value x = g.scale(g.hidden_in(n_floats), 1);
  g.hidden(x);
  g.logits(g.linear(g.rows(x), g.weight("head", {kLogits, n_floats})));
  return g.finish();
}

struct Link {
  std::unique_ptr<DeviceWeights> weights;
  std::unique_ptr<CacheMemory> cache;
  std::unique_ptr<Plan> plan;
};

}  // namespace

Result<double> measure_sum_seconds(std::span<const std::shared_ptr<Backend>> devices, int64_t n_floats) {
  const size_t n = static_cast<size_t>(n_floats);
  const std::vector<std::byte> zeros(n * kLogits * sizeof(float));
  const TensorView head{&k_f32, {kLogits, n_floats}, zeros};
  ZINC_TRY(graph, pass_through_graph(n_floats, head));
  const Graph* const graphs[] = {&graph};
  std::vector<Link> links;
  for (const auto& device : devices) {
    Link link;
    ZINC_TRY(weights, device->upload(graphs, [](auto) {}));
    ZINC_TRY(cache, device->allocate_cache({}, {.n_pages = {}, .n_slots = 1, .kv_format = &k_f16}));
    ZINC_TRY(plan, device->compile(graph, *weights, *cache, {}));
    link = {std::move(weights), std::move(cache), std::move(plan)};
    if (Status s = link.plan->wait_until_prepared(); !s.ok()) return s.error();
    links.push_back(std::move(link));
  }
  const TokenId token = 0;
  const int32_t position = 0, seq_begin[] = {0, 1}, slot = 0;
  std::vector<float> row(n), sum(n);
  std::vector<double> seconds;
  for (int run = 0; run < kRuns; ++run) {
    const auto begin = std::chrono::steady_clock::now();
    for (const Link& link : links) {
      StepInputs step{.tokens = {&token, 1},
                      .positions = {&position, 1},
                      .seq_begin = seq_begin,
                      .slots = {&slot, 1},
                      .page_tables = {},
                      .output_rows = {},
                      .logit_rows = {},
                      .hidden = row};
      step.wants_hidden = true;
      link.plan->start(step);
    }
    Status status = ok_status();
    for (const Link& link : links) {
      const Result<StepOutput> out = link.plan->wait();
      if (!out.ok()) {
        status = out.error();
        continue;
      }
      for (size_t i = 0; i < n; ++i) sum[i] += out.value().hidden[i];
    }
    if (!status.ok()) return status.error();
    row = sum;
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::nth_element(seconds, seconds.begin() + kRuns / 2);
  return seconds[kRuns / 2];
}

}  // namespace zinc::split
