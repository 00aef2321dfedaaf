// Cases of short_conv and delta_net: states across step boundaries, several sequences, reused slots.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "tests/support/conformance.h"

namespace zinc::conformance {
namespace {

const std::vector<std::vector<TokenChunk>> kSteps = {
    {{0, 0, 5}, {1, 0, 1}}, {{1, 1, 1}, {0, 5, 1}}, {{0, 6, 2}}, {{1, 2, 4}}, {{0, 0, 3}}, {{0, 3, 1}, {1, 6, 2}}};

// Steps with whole scan chunks of 64 positions, aligned to 64 or not.
const std::vector<std::vector<TokenChunk>> kLongSteps = {
    {{0, 0, 130}, {1, 0, 1}}, {{1, 1, 66}, {0, 130, 62}}, {{0, 192, 64}, {1, 67, 125}}, {{0, 0, 64}}, {{0, 64, 1}}};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Keeps all inputs of a sequence; tap j reads the input taps - 1 - j tokens back.
Case make_conv(std::string_view name, size_t n_channels, size_t n_taps) {
  CaseBuilder m(name);
  const Value x = m.inputs({{static_cast<int64_t>(n_channels)}})[0];
  const Value weight = m.weight({static_cast<int64_t>(n_channels), static_cast<int64_t>(n_taps)});
  const Doubles w = m.dequantized(weight);
  const auto history = std::make_shared<std::map<int, std::vector<Doubles>>>();
  return m.finish(m.g().short_conv(x, weight, {.cache_layer = 1}), kSteps, [=](const Token& token) {
    auto& past = (*history)[token.slot];
    past.resize(static_cast<size_t>(token.position));
    past.push_back(token.in[0]);
    Doubles out;
    for (size_t c = 0; c < n_channels; ++c) {
      double sum = 0;
      for (size_t back = 0; back < std::min(n_taps, past.size()); ++back) {
        sum += w[c * n_taps + n_taps - 1 - back] * past[past.size() - 1 - back][c];
      }
      out.push_back(sum * sigmoid(sum));
    }
    return out;
  });
}

using Matrix = std::vector<Doubles>;  // [v_dim][k_dim]

struct DeltaShape {
  size_t k_heads, v_heads, k_dim, v_dim;
  HeadSharing sharing;
  float q_scale = 1;
  bool is_long = false;  // many tokens per step
};

// S <- e^g S (I - b k k^T) + b v k^T; out = S q, with S of v_dim rows.
Matrix next_state(const Matrix& S, double decay, double b, std::span<const double> k, std::span<const double> v) {
  Matrix next(v.size(), Doubles(k.size()));
  for (size_t r = 0; r < v.size(); ++r) {
    for (size_t c = 0; c < k.size(); ++c) {
      for (size_t j = 0; j < k.size(); ++j) next[r][c] += decay * S[r][j] * ((j == c ? 1 : 0) - b * k[j] * k[c]);
      next[r][c] += b * v[r] * k[c];
    }
  }
  return next;
}

Case make_delta(std::string_view name, const DeltaShape& s) {
  CaseBuilder m(name);
  const auto n = [](size_t x) { return static_cast<int64_t>(x); };
  const std::vector<Value> in = m.inputs({{n(s.k_heads), n(s.k_dim)},
                                          {n(s.k_heads), n(s.k_dim)},
                                          {n(s.v_heads), n(s.v_dim)},
                                          {n(s.v_heads)},
                                          {n(s.v_heads)}});
  const float most = s.k_dim <= 16 ? 0.4f : 0.2f;  // not longer than a model's normed keys
  m.set_generator(1, [most](std::mt19937& r) { return std::uniform_real_distribution<float>(-most, most)(r); });
  m.set_generator(3, [](std::mt19937& r) {
    return std::uniform_real_distribution<float>(-4, 30)(r);
  });                                // covers the linear range of softplus
  if (s.is_long) m.tolerance(5e-6);  // products of up to 64 decays, and sums over as many tokens
  const Value dt_bias = m.weight({n(s.v_heads)});
  std::vector<float> a_numbers;
  for (size_t h = 0; h < s.v_heads; ++h) a_numbers.push_back(-0.05f * static_cast<float>(h + 1));
  const Value a = m.weight_of({n(s.v_heads)}, a_numbers);
  const Doubles bias = m.dequantized(dt_bias), rate = m.dequantized(a);
  const auto states = std::make_shared<std::map<std::pair<int, size_t>, Matrix>>();
  const DeltaNetParams params{.cache_layer = 3, .sharing = s.sharing, .q_scale = s.q_scale};
  const Value y = m.g().delta_net({in[0], in[1], in[2], in[3], in[4], dt_bias, a}, params);
  return m.finish(y, s.is_long ? kLongSteps : kSteps, [=](const Token& token) {
    Doubles out;
    for (size_t h = 0; h < s.v_heads; ++h) {
      const size_t k_head = s.sharing == HeadSharing::cyclic ? h % s.k_heads : h * s.k_heads / s.v_heads;
      const auto part = [](const Doubles& x, size_t i, size_t width) { return std::span(x).subspan(i * width, width); };
      Matrix& S = (*states)[{token.slot, h}];
      if (token.position == 0) S = Matrix(s.v_dim, Doubles(s.k_dim));
      const double decay = std::exp(rate[h] * std::log(1 + std::exp(token.in[3][h] + bias[h])));
      S = next_state(S, decay, sigmoid(token.in[4][h]), part(token.in[1], k_head, s.k_dim),
                     part(token.in[2], h, s.v_dim));
      for (const Doubles& row : S) {
        double sum = 0;
        for (size_t i = 0; i < s.k_dim; ++i) sum += row[i] * token.in[0][k_head * s.k_dim + i] * double{s.q_scale};
        out.push_back(sum);
      }
    }
    return out;
  });
}

}  // namespace

std::vector<CaseSource> recurrent_cases() {
  std::vector<CaseSource> cases;
  for (const auto& [channels, taps] : {std::pair<size_t, size_t>{6, 4}, {1, 4}, {33, 2}, {5, 1}}) {
    cases.push_back(
        {fmt::format("short_conv {} channels {} taps", channels, taps),
         [channels = channels, taps = taps](std::string_view name) { return make_conv(name, channels, taps); }});
  }
  for (const HeadSharing sharing : {HeadSharing::grouped, HeadSharing::cyclic}) {
    for (const DeltaShape s : {DeltaShape{2, 6, 8, 5, sharing, 1},
                               {3, 3, 4, 4, sharing, 0.5f},
                               {1, 4, 16, 3, sharing, 0.25f},
                               {1, 2, 8, 5, sharing, 1, true},
                               {2, 4, 40, 36, sharing, 0.25f, true}}) {
      cases.push_back(
          {fmt::format("delta_net {} {} of {} heads {}x{}{}", sharing == HeadSharing::grouped ? "grouped" : "cyclic",
                       s.k_heads, s.v_heads, s.k_dim, s.v_dim, s.is_long ? " long" : ""),
           [s](std::string_view name) { return make_delta(name, s); }});
    }
  }
  return cases;
}

}  // namespace zinc::conformance
