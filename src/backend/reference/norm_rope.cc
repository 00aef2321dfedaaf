// norm and rope: ops on one row or one head.
#include <algorithm>
#include <cmath>

#include "backend/reference/kernels.h"
#include "graph/rope.h"

namespace zinc::reference {

// rms: x / sqrt(mean(x^2) + eps) * weight. l2: x / max(|x|, eps).
void run_norm(const Node& node, const StepState& step) {
  const NormParams& params = node.as<NormParams>();
  const std::span<const float> x = step.f32(node.in[0]);
  const std::span<float> out = step.f32(node.out[0]);
  const size_t n = static_cast<size_t>(step.graph.info(node.in[0]).shape.inner());
  const std::vector<float> weight =
      node.in[1] ? dequantize_all(step.graph.info(node.in[1]).weight) : std::vector<float>(n, 1.0f);
  for (size_t begin = 0; begin < x.size(); begin += n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += double{x[begin + i]} * x[begin + i];
    const double eps = params.eps;
    const double norm =
        params.kind == NormKind::rms ? std::sqrt(sum / static_cast<double>(n) + eps) : std::max(std::sqrt(sum), eps);
    const float factor = static_cast<float>(1.0 / norm);
    for (size_t i = 0; i < n; ++i) out[begin + i] = x[begin + i] * factor * weight[i];
  }
}

void run_rope(const Node& node, const StepState& step) {
  const RopeParams& p = node.as<RopeParams>();
  const auto factors = [&](Value v) { return v ? dequantize_all(step.graph.info(v).weight) : std::vector<float>(); };
  const std::vector<RopeRotation> rotations =
      rope_rotations(p, factors(node.in[1]), factors(node.in[2]), kMaxRopeScalings);
  const Shape& shape = step.graph.info(node.in[0]).shape;
  const size_t n_heads = static_cast<size_t>(shape[0]), head_dim = static_cast<size_t>(shape[1]);
  const size_t n_pairs = rotations[0].frequencies.size();
  for (int t = 0; t < step.n_rows(node.in[0]); ++t) {
    const std::span<const float> x = step.row(node.in[0], t);
    const std::span<float> out = step.row(node.out[0], t);
    std::ranges::copy(x, out.begin());
    const size_t seq = static_cast<size_t>(step.seq_of_token[static_cast<size_t>(t)]);
    const RopeRotation& rotation = rotations[std::min(step.inputs.rope_scaling(seq), rotations.size() - 1)];
    for (size_t i = 0; i < n_pairs; ++i) {
      const double angle = step.inputs.positions[static_cast<size_t>(t)] * rotation.frequencies[i];
      const float c = static_cast<float>(std::cos(angle) * rotation.amplitude),
                  s = static_cast<float>(std::sin(angle) * rotation.amplitude);
      const size_t first = p.pairs == RopePairs::adjacent ? 2 * i : i;
      const size_t second = p.pairs == RopePairs::adjacent ? 2 * i + 1 : i + n_pairs;
      for (size_t h = 0; h < n_heads; ++h) {
        const float a = x[h * head_dim + first], b = x[h * head_dim + second];
        out[h * head_dim + first] = a * c - b * s;
        out[h * head_dim + second] = a * s + b * c;
      }
    }
  }
}

}  // namespace zinc::reference
