// Cases of norm and rope.
#include <fmt/format.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "tests/support/conformance.h"

namespace zinc::conformance {
namespace {

struct NormShape {
  NormKind kind;
  int64_t n_heads, width;
  bool weight;
  float eps, size;  // size: largest magnitude of the inputs
};

Case make_norm(std::string_view name, const NormShape& s) {
  CaseBuilder m(name);
  const Value x = m.inputs({{s.n_heads, s.width}})[0];
  m.set_generator(0,
                  [size = s.size](std::mt19937& r) { return std::uniform_real_distribution<float>(-size, size)(r); });
  const Value weight = s.weight ? m.weight({s.width}) : Value{};
  const Doubles w = s.weight ? m.dequantized(weight) : Doubles(static_cast<size_t>(s.width), 1.0);
  const Value y = s.kind == NormKind::rms ? m.g().rms_norm(x, weight, s.eps) : m.g().l2_norm(x, s.eps);
  return m.finish(y, {{{0, 0, 4}}}, [=](const Token& token) {
    Doubles out;
    for (size_t i = 0; i < token.in[0].size(); ++i) {
      const size_t width = w.size(), head = i / width;
      double squares = 0;
      for (size_t j = head * width; j < (head + 1) * width; ++j) squares += std::pow(token.in[0][j], 2);
      const double norm = s.kind == NormKind::rms ? std::sqrt(squares / static_cast<double>(width) + double{s.eps})
                                                  : std::max(std::sqrt(squares), double{s.eps});
      out.push_back(token.in[0][i] / norm * w[i % width]);
    }
    return out;
  });
}

// A token's heads, each rotated as a complex multiplication by `angle(pair)`.
Doubles rotated_heads(const Doubles& heads, const RopeParams& params, size_t head_dim, double amplitude,
                      const std::function<double(size_t pair)>& angle) {
  Doubles out = heads;
  const size_t n_pairs = static_cast<size_t>(params.n_dims / 2);
  for (size_t pair = 0; pair < n_pairs; ++pair) {
    const size_t a = params.pairs == RopePairs::adjacent ? 2 * pair : pair;
    const size_t b = params.pairs == RopePairs::adjacent ? 2 * pair + 1 : pair + n_pairs;
    for (size_t h = 0; h < heads.size(); h += head_dim) {
      const std::complex<double> rotated =
          std::complex<double>(heads[h + a], heads[h + b]) * std::polar(amplitude, angle(pair));
      out[h + a] = rotated.real();
      out[h + b] = rotated.imag();
    }
  }
  return out;
}

// `frequency(pair)` is the angle per position.
Case make_rope(std::string_view name, const RopeParams& params, int64_t head_dim, bool factors,
               const std::function<double(double pair)>& frequency) {
  CaseBuilder m(name);
  constexpr int64_t kHeads = 3;
  const Value x = m.inputs({{kHeads, head_dim}})[0];
  std::vector<float> divisors;
  for (int64_t i = 0; i < params.n_dims / 2; ++i) divisors.push_back(1 + 0.5f * static_cast<float>(i % 4));
  const Value factor_weight = factors ? m.weight_of({params.n_dims / 2}, divisors) : Value{};
  const std::vector<std::vector<TokenChunk>> steps = {{{0, 0, 3}, {1, 1000, 2}}, {{0, 3, 1}}, {{1, 4095, 1}}};
  return m.finish(m.g().rope(x, params, factor_weight), steps, [=](const Token& token) {
    return rotated_heads(token.in[0], params, static_cast<size_t>(head_dim), params.amplitude, [&](size_t pair) {
      return token.position * frequency(static_cast<double>(pair)) / (factors ? divisors[pair] : 1.0f);
    });
  });
}

// Sequences with different RoPE scalings in one step, and each alone.
struct RopeScale {
  double frequency, amplitude;  // factors on those without scaling
};
Case make_rope_scalings(std::string_view name, const RopeParams& params, int n_scalings,
                        const std::function<RopeScale(size_t pair, int scaling)>& scale) {
  CaseBuilder m(name);
  constexpr int64_t kHeads = 3, kHeadDim = 64;
  const Value x = m.inputs({{kHeads, kHeadDim}})[0];
  Value factors[2];
  if (params.extension.kind == RopeExtensionKind::longrope) {
    for (int scaling : {0, 1}) {
      std::vector<float> divisors;
      for (size_t pair = 0; pair < kHeadDim / 2; ++pair) {
        divisors.push_back(static_cast<float>(1 / scale(pair, scaling).frequency));
      }
      factors[scaling] = m.weight_of({kHeadDim / 2}, divisors);
    }
  }
  const int last = n_scalings - 1;
  const std::vector<std::vector<TokenChunk>> steps = {{{0, 0, 3, 0}, {1, 1000, 2, 1}, {2, 16000, 2, last}},
                                                      {{2, 16002, 1, last}},
                                                      {{0, 3, 1, 0}},
                                                      {{1, 1002, 1, 1}, {0, 4, 1, 0}}};
  return m.finish(m.g().rope(x, params, factors[0], factors[1]), steps, [=](const Token& token) {
    const double amplitude = scale(0, token.rope_scaling).amplitude;
    return rotated_heads(token.in[0], params, kHeadDim, amplitude, [&](size_t pair) {
      const double plain = std::pow(double{params.theta}, -2 * static_cast<double>(pair) / kHeadDim);
      return token.position * plain * scale(pair, token.rope_scaling).frequency;
    });
  });
}

}  // namespace

std::vector<CaseSource> norm_rope_cases() {
  std::vector<CaseSource> cases;
  for (const NormShape s : {NormShape{NormKind::rms, 1, 64, true, 1e-6f, 1},
                            {NormKind::rms, 1, 129, true, 1e-5f, 1},
                            {NormKind::rms, 1, 8499, true, 1e-5f, 1},
                            {NormKind::rms, 3, 5, true, 1e-6f, 1},
                            {NormKind::rms, 2, 8, false, 1e-6f, 1},
                            {NormKind::rms, 1, 1, true, 1e-6f, 1},
                            {NormKind::rms, 1, 16, true, 1e-2f, 1e-3f},
                            {NormKind::rms, 1, 32, true, 1e-6f, 1e4f},
                            {NormKind::l2, 3, 8, false, 1e-6f, 1},
                            {NormKind::l2, 1, 33, false, 1e-6f, 100},
                            {NormKind::l2, 1, 8, false, 1e-1f, 1e-3f}}) {
    cases.push_back({fmt::format("norm {} {}x{}{} eps{} size{}", s.kind == NormKind::rms ? "rms" : "l2", s.n_heads,
                                 s.width, s.weight ? " weight" : "", s.eps, s.size),
                     [s](std::string_view name) { return make_norm(name, s); }});
  }
  for (const RopePairs pairs : {RopePairs::adjacent, RopePairs::halves}) {
    const auto add_rope = [&](std::string_view what, RopeParams params, int64_t head_dim, bool factors,
                              std::function<double(double)> frequency) {
      params.pairs = pairs;
      cases.push_back({fmt::format("rope {} {}", pairs == RopePairs::adjacent ? "adjacent" : "halves", what),
                       [=](std::string_view name) { return make_rope(name, params, head_dim, factors, frequency); }});
    };
    const auto plain = [](double base, double n_dims) {
      return [=](double pair) { return std::pow(base, -2 * pair / n_dims); };
    };
    add_rope("whole head", {.n_dims = 16, .theta = 10000}, 16, false, plain(10000, 16));
    add_rope("part of the head", {.n_dims = 6, .theta = 500000}, 10, false, plain(500000, 6));
    add_rope("factors", {.n_dims = 8, .theta = 10000}, 8, true, plain(10000, 8));
    add_rope("scaled", {.n_dims = 8, .theta = 10000, .position_scale = 0.25f, .amplitude = 1.5f}, 8, false,
             [=](double pair) { return plain(10000, 8)(pair) / 4; });
    // Pairs below 10 have high frequencies, pairs 23 and above low ones (see graph/rope_test.cc for the corners).
    add_rope(
        "yarn",
        {.n_dims = 64, .theta = 10000, .position_scale = 0.25f, .amplitude = 1.1f, .yarn = {.original_context = 4096}},
        64, false, [=](double pair) {
          const double share = pair <= 10 ? 0 : pair >= 23 ? 1 : (pair - 10) / 13;
          return plain(10000, 64)(pair) * (1 - share + share / 4);
        });
    const auto add_scalings = [&](std::string_view what, RopeExtension extension, int n_scalings,
                                  std::function<RopeScale(size_t, int)> scale) {
      const RopeParams params{.pairs = pairs, .n_dims = 64, .theta = 10000, .extension = extension};
      cases.push_back({fmt::format("rope {} {}", pairs == RopePairs::adjacent ? "adjacent" : "halves", what),
                       [=](std::string_view name) { return make_rope_scalings(name, params, n_scalings, scale); }});
    };
    add_scalings("yarn by sequence", {RopeExtensionKind::yarn, 4096, 16384}, 4, [](size_t pair, int scaling) {
      const double share = pair <= 10 ? 0 : pair >= 23 ? 1 : (static_cast<double>(pair) - 10) / 13;
      // The factor is a float: 1 / 3 has seven digits, at positions of five.
      const double interpolated = 1.0f / static_cast<float>(scaling + 1);
      return RopeScale{1 - share + share * interpolated, 1 + 0.1 * std::log(scaling + 1)};
    });
    add_scalings("longrope by sequence", {RopeExtensionKind::longrope, 4096, 16384}, 2, [](size_t pair, int scaling) {
      return RopeScale{1.0 / static_cast<double>(scaling == 0 ? 1 + pair % 4 : 2 + pair % 8), 1};
    });
  }
  return cases;
}

}  // namespace zinc::conformance
