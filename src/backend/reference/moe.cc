// moe_route and moe_combine: selects the experts of a token, and adds up their weighted outputs.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/reference/kernels.h"

namespace zinc::reference {
namespace {

void softmax(std::span<float> x) {
  const float largest = *std::ranges::max_element(x);
  float sum = 0;
  for (float& v : x) sum += v = std::exp(v - largest);
  for (float& v : x) v /= sum;
}

}  // namespace

void run_moe_route(const Node& node, const StepState& step) {
  const MoeRouteParams& params = node.as<MoeRouteParams>();
  const size_t n_experts = step.width(node.in[0]), n_used = static_cast<size_t>(params.n_used);
  std::vector<int32_t> order(n_experts);
  for (int t = 0; t < step.n_rows(node.in[0]); ++t) {
    const std::span<const float> logits = step.row(node.in[0], t);
    const auto larger = [&](int32_t a, int32_t b) {  // ties: lower id first
      const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    };
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + params.n_used, order.end(), larger);
    const std::span<int32_t> ids = step.i32(node.out[0]).subspan(static_cast<size_t>(t) * n_used, n_used);
    const std::span<float> weights = step.row(node.out[1], t);
    std::copy_n(order.begin(), n_used, ids.begin());
    std::vector<float> all(logits.begin(), logits.end());
    if (params.weights != RouterNormalization::softmax_of_selected) softmax(all);
    for (size_t u = 0; u < n_used; ++u) weights[u] = all[static_cast<size_t>(ids[u])];
    if (params.weights == RouterNormalization::softmax_of_selected) softmax(weights);
    if (params.weights == RouterNormalization::softmax_normalized) {
      const float sum = std::accumulate(weights.begin(), weights.end(), 0.0f);
      for (float& w : weights) w /= sum;
    }
    for (float& w : weights) w *= params.scale;
  }
}

void run_moe_combine(const Node& node, const StepState& step) {
  const size_t n_used = step.width(node.in[1]), dim = step.width(node.out[0]);
  for (int t = 0; t < step.n_rows(node.out[0]); ++t) {
    const std::span<const float> x = step.row(node.in[0], t), weights = step.row(node.in[1], t);
    const std::span<float> out = step.row(node.out[0], t);
    for (size_t i = 0; i < dim; ++i) {
      float sum = 0;
      for (size_t u = 0; u < n_used; ++u) sum += x[u * dim + i] * weights[u];
      out[i] = sum;
    }
  }
}

}  // namespace zinc::reference
