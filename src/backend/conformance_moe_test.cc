// Cases of moe_route and moe_combine. The ids are observed through experts that return their own index.
#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "tests/support/conformance.h"

namespace zinc::conformance {
namespace {

struct RouteShape {
  RouterNormalization weights;
  int64_t n_experts = 8, n_used = 3;
  float scale = 1;
  bool ties = false;
};

// Selects the largest repeatedly; ties: lower index first.
std::vector<size_t> largest(Doubles logits, size_t n) {
  std::vector<size_t> chosen;
  for (size_t u = 0; u < n; ++u) {
    size_t best = logits.size();
    for (size_t e = 0; e < logits.size(); ++e) {
      const bool is_free = std::find(chosen.begin(), chosen.end(), e) == chosen.end();
      if (is_free && (best == logits.size() || logits[e] > logits[best])) best = e;
    }
    chosen.push_back(best);
  }
  return chosen;
}

Doubles expected_weights(const Doubles& logits, const std::vector<size_t>& chosen, const RouteShape& s) {
  double of_all = 0, of_chosen = 0;
  for (double x : logits) of_all += std::exp(x);
  for (size_t e : chosen) of_chosen += std::exp(logits[e]);
  // Normalized softmax weights over all experts equal the softmax over the chosen ones.
  const double total = s.weights == RouterNormalization::softmax ? of_all : of_chosen;
  Doubles out;
  for (size_t e : chosen) out.push_back(std::exp(logits[e]) / total * double{s.scale});
  return out;
}

Case make_route(std::string_view name, const RouteShape& s) {
  CaseBuilder m(name);
  const std::vector<Value> in = m.inputs({{s.n_experts}, {1}});
  m.set_generator(0, [ties = s.ties](std::mt19937& r) {
    return ties ? static_cast<float>(r() % 3) : std::uniform_real_distribution<float>(-4, 4)(r);
  });
  m.set_generator(1, [](std::mt19937&) { return 1.0f; });
  std::vector<float> values(static_cast<size_t>(s.n_experts));
  std::iota(values.begin(), values.end(), 0.0f);
  const Value counting = m.weight_of({s.n_experts, 1, 1}, values);
  const auto [ids, weights] = m.g().moe_route(in[0], {.n_used = s.n_used, .weights = s.weights, .scale = s.scale});
  const Value seen = m.g().flatten(m.g().moe_linear(in[1], {counting}, ids));  // [T, used]: the ids
  return m.finish(m.g().concat(seen, weights), {{{0, 0, 25}}}, [=](const Token& token) {
    const std::vector<size_t> chosen = largest(token.in[0], static_cast<size_t>(s.n_used));
    Doubles out(chosen.begin(), chosen.end());
    const Doubles weights = expected_weights(token.in[0], chosen, s);
    out.insert(out.end(), weights.begin(), weights.end());
    return out;
  });
}

Case make_combine(std::string_view name) {
  CaseBuilder m(name);
  const std::vector<Value> in = m.inputs({{3, 7}, {3}});
  return m.finish(m.g().moe_combine(in[0], in[1]), {{{0, 0, 5}}}, [](const Token& token) {
    Doubles out(7);
    for (size_t i = 0; i < 21; ++i) out[i % 7] += token.in[0][i] * token.in[1][i / 7];
    return out;
  });
}

}  // namespace

std::vector<CaseSource> moe_cases() {
  std::vector<CaseSource> cases;
  struct Mode {
    const char* name;
    RouterNormalization weights;
  };
  for (const Mode& mode : {Mode{"softmax", RouterNormalization::softmax},
                           {"softmax_normalized", RouterNormalization::softmax_normalized},
                           {"softmax_of_selected", RouterNormalization::softmax_of_selected}}) {
    const auto add = [&](std::string_view what, const RouteShape& s) {
      cases.push_back({fmt::format("moe_route {} {}", mode.name, what),
                       [s](std::string_view name) { return make_route(name, s); }});
    };
    add("3 of 8", {.weights = mode.weights});
    add("1 of 5 scaled", {.weights = mode.weights, .n_experts = 5, .n_used = 1, .scale = 2.5f});
    add("all of 4", {.weights = mode.weights, .n_experts = 4, .n_used = 4});
    add("ties", {.weights = mode.weights, .n_experts = 16, .n_used = 6, .ties = true});
  }
  cases.push_back({"moe_combine", make_combine});
  return cases;
}

}  // namespace zinc::conformance
