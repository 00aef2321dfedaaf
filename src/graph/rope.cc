#include "graph/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zinc {
namespace {

// The pair whose wave turns `n_turns` times over the original context.
double yarn_pair(const RopeParams& p, double n_turns) {
  const double wavelengths = p.yarn.original_context / (n_turns * 2 * std::numbers::pi);
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
    const double plain = std::pow(double{p.theta}, -2.0 * static_cast<double>(i) / static_cast<double>(p.n_dims)) /
                         (factors.empty() ? 1.0 : double{factors[i]});
    const double stretched = plain * p.position_scale;
    double keep = 0;  // share of the unstretched frequency: 1 for fast pairs, 0 for slow ones, a ramp between
    if (yarn) keep = 1 - std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    out[i] = stretched * (1 - keep) + plain * keep;
  }
  return out;
}

}  // namespace zinc
