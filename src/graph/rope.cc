#include "graph/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zinc {
namespace {

// The pair that rotates `n_rotations` times over the original context.
double yarn_pair(const RopeParams& p, double n_rotations) {
  const double wavelengths = p.yarn.original_context / (n_rotations * 2 * std::numbers::pi);
  return static_cast<double>(p.n_dims) * std::log(wavelengths) / (2 * std::log(double{p.theta}));
}

}  // namespace

std::vector<double> rope_frequencies(const RopeParams& p, std::span<const float> factors) {
  const bool yarn = p.yarn.original_context > 0;
  const double low = yarn ? std::max(0.0, std::floor(yarn_pair(p, p.yarn.beta_fast))) : 0;
  const double high =
      yarn ? std::min(static_cast<double>(p.n_dims) - 1.0, std::ceil(yarn_pair(p, p.yarn.beta_slow))) : 0;
  std::vector<double> out(static_cast<size_t>(p.n_dims / 2));
  for (size_t i = 0; i < out.size(); ++i) {
    const double original = std::pow(double{p.theta}, -2.0 * static_cast<double>(i) / static_cast<double>(p.n_dims)) /
                            (factors.empty() ? 1.0 : double{factors[i]});
    const double interpolated = original * p.position_scale;
    double keep = 0;  // weight of the original frequency: 1 for high frequencies, 0 for low ones, a ramp between
    if (yarn) keep = 1 - std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    out[i] = interpolated * (1 - keep) + original * keep;
  }
  return out;
}

void extend_with_yarn(RopeParams& p, int64_t original) {
  p.yarn.original_context = static_cast<float>(original);
  p.amplitude *= 1 + 0.1f * std::log(std::max(1.0f, 1 / p.position_scale));  // only for an extended context
}

std::vector<RopeRotation> rope_rotations(const RopeParams& p, std::span<const float> factors,
                                         std::span<const float> long_factors, int n_scalings) {
  std::vector<RopeRotation> out = {{rope_frequencies(p, factors), p.amplitude}};
  if (p.extension.kind == RopeExtensionKind::none) return out;
  for (int s = 1; s < n_scalings; ++s) {
    RopeParams scaled = p;
    const bool is_yarn = p.extension.kind == RopeExtensionKind::yarn;
    if (is_yarn) {
      scaled.position_scale = 1 / static_cast<float>(s + 1);
      extend_with_yarn(scaled, p.extension.context);
    }
    out.push_back({rope_frequencies(scaled, is_yarn ? factors : long_factors), scaled.amplitude});
  }
  return out;
}

RopeExtension rope_extension(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op != Op::rope) continue;
    const RopeExtension& extension = node.as<RopeParams>().extension;
    if (extension.kind != RopeExtensionKind::none) return extension;
  }
  return {};
}

std::vector<int> rope_contexts(const Graph& graph, int context) {
  const RopeExtension extension = rope_extension(graph);
  const int n_scalings = extension.kind == RopeExtensionKind::yarn       ? kMaxRopeScalings
                         : extension.kind == RopeExtensionKind::longrope ? 2
                                                                         : 1;
  std::vector<int> contexts;
  for (int s = 1; s < n_scalings && extension.context * s < context; ++s) {
    contexts.push_back(static_cast<int>(extension.context * s));
  }
  contexts.push_back(context);
  return contexts;
}

int rope_scaling_for(std::span<const int> contexts, int64_t length) {
  const auto fits = std::ranges::find_if(contexts, [&](int context) { return length <= context; });
  return static_cast<int>(std::min(fits - contexts.begin(), std::ssize(contexts) - 1));
}

}  // namespace zinc
