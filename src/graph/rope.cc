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

}  // namespace zinc
