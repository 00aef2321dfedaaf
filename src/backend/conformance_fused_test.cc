// Cases of larger parts of a layer, which backends fuse into few kernels in decode and into more in larger steps: gated
// activations, experts with a shared expert, norms before the residual add. Widths and counts are chosen so that K
// segments and work tiles cannot be distributed evenly.
// The case names seed the random data (CaseBuilder), so they are not renamed.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/support/conformance.h"

namespace zinc::conformance {
namespace {

constexpr double kChainTolerance = 1.5e-2;  // two consecutive matmuls of quantized activations
constexpr float kEps = 1e-6f;

// ---- expected results ----

// Matrix `stack` times x.
Doubles times(const Doubles& matrices, const Doubles& x, size_t n_out, size_t which = 0) {
  Doubles out(n_out);
  for (size_t o = 0; o < n_out; ++o) {
    for (size_t k = 0; k < x.size(); ++k) out[o] += matrices[(which * n_out + o) * x.size() + k] * x[k];
  }
  return out;
}

Doubles normed(const Doubles& x, const Doubles& weights = {}) {
  double sum = 0;
  for (double v : x) sum += v * v;
  const double factor = 1 / std::sqrt(sum / static_cast<double>(x.size()) + double{kEps});
  Doubles out(x);
  for (size_t i = 0; i < x.size(); ++i) out[i] *= factor * (weights.empty() ? 1 : weights[i]);
  return out;
}

Doubles sum(Doubles a, const Doubles& b, double factor = 1) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Doubles gated(const Doubles& gate, const Doubles& up) {
  Doubles out(gate);
  for (size_t i = 0; i < gate.size(); ++i) out[i] = gate[i] * sigmoid(gate[i]) * up[i];
  return out;
}

// ---- a sum of matmuls ----

// The sum of two matmuls, either of which could have it as epilogue.
Case make_sum(std::string_view name, int n_tokens) {
  constexpr int64_t kIn = 288, kOut = 40;
  CaseBuilder m(name);
  const std::vector<Value> in = m.inputs({{kIn}, {kIn}});
  const Value a = m.weight({kOut, kIn}, *find_format("q8_0")), b = m.weight({kOut, kIn}, *find_format("q4_0"));
  m.tolerance(kChainTolerance);
  const Doubles first = m.dequantized(a), second = m.dequantized(b);
  return m.finish(
      m.g().add(m.g().linear(in[0], a), m.g().linear(in[1], b)), {{{0, 0, n_tokens}}},
      [=](const Token& token) { return sum(times(first, token.in[0], kOut), times(second, token.in[1], kOut)); });
}

// ---- a gated activation ----

struct GateShape {
  const char* format;
  int64_t n_in, n_out;
  int n_tokens;
};

// gate and up of a normed row.
Case make_gate(std::string_view name, const GateShape& s) {
  CaseBuilder m(name);
  const Value x = m.inputs({{s.n_in}})[0], norm = m.weight({s.n_in});
  const Format& format = *find_format(s.format);
  const Value gate = m.weight({s.n_out, s.n_in}, format), up = m.weight({s.n_out, s.n_in}, format);
  const Value h = m.g().rms_norm(x, norm, kEps);
  const Value out = m.g().gated_act(Act::silu, m.g().linear(h, gate), m.g().linear(h, up));
  m.tolerance(kChainTolerance);
  const Doubles n = m.dequantized(norm), g = m.dequantized(gate), u = m.dequantized(up);
  return m.finish(out, {{{0, 0, s.n_tokens}}}, [=](const Token& token) {
    const Doubles row = normed(token.in[0], n);
    const size_t n_out = static_cast<size_t>(s.n_out);
    return gated(times(g, row, n_out), times(u, row, n_out));
  });
}

// A matmul to a wide row, gate and up of it, down and the residual add: covers data that a backend prefetches before
// the previous kernel has finished, and rows that it reads in several parts.
Case make_wide(std::string_view name, int64_t wide, int n_tokens) {
  constexpr int64_t kRow = 256;
  CaseBuilder m(name);
  GraphBuilder& g = m.g();
  const Format& q4 = *find_format("q4_k");
  const Value x = m.inputs({{kRow}})[0], norm = m.weight({wide}), into = m.weight({wide, kRow}, q4);
  const Value gate = m.weight({kRow, wide}, q4), up = m.weight({kRow, wide}, q4), back = m.weight({kRow, kRow}, q4);
  const Value h = g.rms_norm(g.linear(x, into), norm, kEps);
  const Value out = g.add(g.linear(g.gated_act(Act::silu, g.linear(h, gate), g.linear(h, up)), back), x);
  m.tolerance(3 * kChainTolerance);  // three consecutive matmuls, one of them squared
  const Doubles n = m.dequantized(norm), i = m.dequantized(into), a = m.dequantized(gate), u = m.dequantized(up),
                b = m.dequantized(back);
  return m.finish(out, {{{0, 0, n_tokens}}}, [=](const Token& token) {
    const Doubles row = normed(times(i, token.in[0], static_cast<size_t>(wide)), n);
    return sum(times(b, gated(times(a, row, kRow), times(u, row, kRow)), kRow), token.in[0]);
  });
}

// A packed gate_up matrix, applied to the output rows.
Case make_halves_of_rows(std::string_view name, int n_tokens) {
  constexpr int64_t kIn = 1024, kHalf = 256;
  CaseBuilder m(name);
  GraphBuilder& g = m.g();
  const Format& q8 = *find_format("q8_0");
  const Value x = m.inputs({{kIn}})[0], before = m.weight({kIn, kIn}, q8), both = m.weight({2 * kHalf, kIn}, q8);
  const Value h = g.linear(g.rows(g.linear(x, before)), both);
  const Value out = g.gated_act(Act::silu, g.slice(h, 0, kHalf), g.slice(h, kHalf, kHalf));
  m.has_rows();
  m.tolerance(kChainTolerance);
  const Doubles of_before = m.dequantized(before), of_both = m.dequantized(both);
  return m.finish(out, {{{0, 0, n_tokens}}}, [=](const Token& token) {
    const Doubles halves = times(of_both, times(of_before, token.in[0], kIn), 2 * kHalf);
    return gated(Doubles(halves.begin(), halves.begin() + kHalf), Doubles(halves.begin() + kHalf, halves.end()));
  });
}

// ---- experts ----

// Added to the experts' result: nothing, a shared expert or a matmul; or the experts' input is a matmul parallel to the
// router.
enum class Extra { none, shared, matmul, input };

struct MoeShape {
  int64_t n_used, ff_dim;
  Extra extra;
  int n_tokens;
  const char *gate = "q8_0", *up = "q8_0";  // of the shared expert
  float factor = 1;                         // scales the experts' weights, in a separate node
};

constexpr int64_t kDim = 512, kExperts = 6;

struct Experts {
  Value router, gate, up, down;
};

Value routed(GraphBuilder& g, Value logits, Value row, const Experts& w, const MoeShape& s) {
  auto [ids, weights] = g.moe_route(logits, {.n_used = s.n_used, .weights = RouterNormalization::softmax_of_selected});
  if (s.factor != 1) weights = g.scale(weights, s.factor);
  const Value act = g.gated_act(Act::silu, g.moe_linear(row, {w.gate}, ids), g.moe_linear(row, {w.up}, ids));
  return g.moe_combine(g.moe_linear(act, {w.down}, ids), weights);
}

struct ExpertWeights {
  Doubles router, gate, up, down;
};

// h: input of the router; row: input of the experts.
Doubles expected_routed(const Doubles& h, const Doubles& row, const ExpertWeights& w, const MoeShape& s) {
  const size_t n_used = static_cast<size_t>(s.n_used), ff_dim = static_cast<size_t>(s.ff_dim);
  Doubles logits = times(w.router, h, kExperts), out(kDim);
  std::vector<size_t> chosen;
  double total = 0;
  for (size_t u = 0; u < n_used; ++u) {
    const size_t best = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
    chosen.push_back(best);
    total += std::exp(logits[best]);
    logits[best] = -1e9;
  }
  const Doubles fresh = times(w.router, h, kExperts);
  for (size_t e : chosen) {
    const Doubles act = gated(times(w.gate, row, ff_dim, e), times(w.up, row, ff_dim, e));
    out = sum(out, times(w.down, act, kDim, e), double{s.factor} * std::exp(fresh[e]) / total);
  }
  return out;
}

// An MoE FFN with the residual add.
Case make_moe(std::string_view name, const MoeShape& s) {
  CaseBuilder m(name);
  GraphBuilder& g = m.g();
  const Format& q8 = *find_format("q8_0");
  const Value x = m.inputs({{kDim}})[0], h = g.rms_norm(x, m.weight_of({kDim}, std::vector<float>(kDim, 0.125f)), kEps);
  const Experts w{m.weight({kExperts, kDim}), m.weight({kExperts, s.ff_dim, kDim}, q8),
                  m.weight({kExperts, s.ff_dim, kDim}, q8), m.weight({kExperts, kDim, s.ff_dim}, q8)};
  const Value scalar = m.weight({1, kDim}), extra = m.weight({kDim, kDim}, q8);
  Value out = routed(g, g.linear(h, w.router), s.extra == Extra::input ? g.linear(h, extra) : h, w, s);
  const Value gate = m.weight({s.ff_dim, kDim}, *find_format(s.gate)),
              up = m.weight({s.ff_dim, kDim}, *find_format(s.up));
  const Value down = m.weight({kDim, s.ff_dim}, q8);
  if (s.extra == Extra::shared) {
    const Value act = g.gated_act(Act::silu, g.linear(h, gate), g.linear(h, up));
    out = g.add(out, g.gated_act(Act::sigmoid, g.linear(h, scalar), g.linear(act, down)));
  } else if (s.extra == Extra::matmul) {
    out = g.add(out, g.linear(h, extra));
  }
  m.tolerance(kChainTolerance);
  const ExpertWeights n{m.dequantized(w.router), m.dequantized(w.gate), m.dequantized(w.up), m.dequantized(w.down)};
  const Doubles of_scalar = m.dequantized(scalar), of_extra = m.dequantized(extra), of_gate = m.dequantized(gate),
                of_up = m.dequantized(up), of_down = m.dequantized(down);
  return m.finish(g.add(out, x), {{{0, 0, s.n_tokens}}}, [=](const Token& token) {
    const Doubles row = normed(token.in[0], Doubles(kDim, 0.125));
    const size_t ff_dim = static_cast<size_t>(s.ff_dim);
    const Doubles matmul = times(of_extra, row, kDim), &own = s.extra == Extra::input ? matmul : row;
    const Doubles all = sum(expected_routed(row, own, n, s), token.in[0]);
    if (s.extra == Extra::matmul) return sum(all, matmul);
    if (s.extra != Extra::shared) return all;
    const Doubles act = gated(times(of_gate, row, ff_dim), times(of_up, row, ff_dim));
    return sum(all, times(of_down, act, kDim), sigmoid(times(of_scalar, row, 1)[0]));
  });
}

// Two sets of experts of one row; both routers' logits are computed before the first routing.
Case make_two_routers(std::string_view name, int n_tokens) {
  constexpr int64_t kFf = 256;
  const MoeShape s{2, kFf, Extra::none, n_tokens};
  CaseBuilder m(name);
  GraphBuilder& g = m.g();
  const Format& q8 = *find_format("q8_0");
  const Value x = m.inputs({{kDim}})[0], h = g.rms_norm(x, m.weight_of({kDim}, std::vector<float>(kDim, 0.125f)), kEps);
  std::array<Experts, 2> w;
  std::array<ExpertWeights, 2> n;
  std::array<Value, 2> logits;
  for (size_t i = 0; i < 2; ++i) {
    w[i] = {m.weight({kExperts, kDim}), m.weight({kExperts, kFf, kDim}, q8), m.weight({kExperts, kFf, kDim}, q8),
            m.weight({kExperts, kDim, kFf}, q8)};
    n[i] = {m.dequantized(w[i].router), m.dequantized(w[i].gate), m.dequantized(w[i].up), m.dequantized(w[i].down)};
    logits[i] = g.linear(h, w[i].router);
  }
  const Value first = routed(g, logits[0], h, w[0], s), second = routed(g, logits[1], h, w[1], s);
  m.tolerance(kChainTolerance);
  return m.finish(g.add(first, second), {{{0, 0, n_tokens}}}, [=](const Token& token) {
    const Doubles row = normed(token.in[0], Doubles(kDim, 0.125));
    return sum(expected_routed(row, row, n[0], s), expected_routed(row, row, n[1], s));
  });
}

// Routed experts with one input row per expert.
Case make_moe_linear_per_expert_rows(std::string_view name, int n_tokens) {
  constexpr int64_t kUsed = 2, kOut = 40;
  CaseBuilder m(name);
  const std::vector<Value> in = m.inputs({{kDim}, {kUsed, kDim}});
  const Value router = m.weight({kExperts, kDim}), experts = m.weight({kExperts, kOut, kDim}, *find_format("q8_0"));
  const Value ids = m.g().moe_route(m.g().linear(in[0], router), {.n_used = kUsed}).ids;
  m.tolerance(kChainTolerance);
  const Doubles r = m.dequantized(router), w = m.dequantized(experts);
  return m.finish(m.g().moe_linear(in[1], {experts}, ids), {{{0, 0, n_tokens}}}, [=](const Token& token) {
    Doubles logits = times(r, token.in[0], kExperts), out;
    for (size_t u = 0; u < kUsed; ++u) {
      const size_t best = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
      logits[best] = -1e9;
      const auto row = token.in[1].begin() + static_cast<ptrdiff_t>(u * kDim);
      const Doubles row_values = times(w, Doubles(row, row + kDim), kOut, best);
      out.insert(out.end(), row_values.begin(), row_values.end());
    }
    return out;
  });
}

// ---- norms and the residual ----

// Results are normed before the residual add, the second time two of them. A branch of the first sum is normed and
// scaled separately, and read by a matmul.
Case make_branch(std::string_view name, int64_t dim, int n_tokens) {
  CaseBuilder m(name);
  GraphBuilder& g = m.g();
  const float factor = 1 / std::sqrt(static_cast<float>(dim));
  std::array<Value, 4> w;
  std::array<Doubles, 4> n;
  for (size_t i = 0; i < w.size(); ++i) n[i] = m.dequantized(w[i] = m.weight({dim, dim}, *find_format("q8_0")));
  const Value in = m.inputs({{dim}})[0], norm = m.weight({dim}), scales = m.weight({dim});
  const auto normed_by = [&](Value v, Value weights) { return g.rms_norm(v, weights, kEps); };
  const Value x = g.add(in, normed_by(g.linear(in, w[0]), norm));
  const Value branch = g.mul(g.scale(normed_by(x, {}), factor), scales), h = normed_by(x, norm);
  const Value both = g.add(normed_by(g.linear(h, w[1]), norm), normed_by(g.linear(h, w[2]), {}));
  const Value out = g.add(g.add(x, normed_by(both, norm)), g.linear(branch, w[3]));
  m.tolerance(kChainTolerance);
  const Doubles by = m.dequantized(norm), f = m.dequantized(scales);
  return m.finish(out, {{{0, 0, n_tokens}}}, [=](const Token& token) {
    const size_t width = static_cast<size_t>(dim);
    const Doubles first = sum(token.in[0], normed(times(n[0], token.in[0], width), by)), row = normed(first, by);
    Doubles branch_row = normed(first);
    for (size_t i = 0; i < width; ++i) branch_row[i] *= double{factor} * f[i];
    const Doubles of_both = sum(normed(times(n[1], row, width), by), normed(times(n[2], row, width)));
    return sum(sum(first, normed(of_both, by)), times(n[3], branch_row, width));
  });
}

struct NormResidualShape {
  const char* format;
  int64_t dim;
  int n_tokens;
  bool is_scaled, is_gate;
};

// Norm and residual add, then a norm of the sum for a matmul or for gate and up; another matmul reads the sum later.
Case make_norm_residual(std::string_view name, const NormResidualShape& s) {
  constexpr int64_t kIn = 64, kOut = 40;
  CaseBuilder m(name);
  GraphBuilder& g = m.g();
  const std::vector<Value> in = m.inputs({{s.dim}, {kIn}});
  const Format& format = *find_format(s.format);
  const Value made = m.weight({s.dim, kIn}, *find_format("q8_0")), norm = m.weight({s.dim}), scale = m.weight({1});
  const Value first = m.weight({kOut, s.dim}, format), second = m.weight({kOut, s.dim}, format);
  Value x = g.add(in[0], g.rms_norm(g.linear(in[1], made), norm, kEps));
  if (s.is_scaled) x = g.mul(x, scale);
  const Value row = g.rms_norm(x, norm, kEps), up = m.weight({kOut, s.dim}, format);
  const Value h = s.is_gate ? g.gated_act(Act::silu, g.linear(row, first), g.linear(row, up)) : g.linear(row, first);
  m.tolerance(s.is_gate ? 2 * kChainTolerance : kChainTolerance);  // errors of gate and up add up
  const Doubles w = m.dequantized(made), by = m.dequantized(norm), a = m.dequantized(first), b = m.dequantized(second),
                c = m.dequantized(up);
  const double factor = s.is_scaled ? m.dequantized(scale)[0] : 1;
  const size_t width = static_cast<size_t>(s.dim);
  return m.finish(g.add(h, g.linear(x, second)), {{{0, 0, s.n_tokens}}}, [=](const Token& token) {
    Doubles all = sum(token.in[0], normed(times(w, token.in[1], width), by));
    for (double& v : all) v *= factor;
    const Doubles row_values = normed(all, by), result = times(a, row_values, kOut);
    return sum(s.is_gate ? gated(result, times(c, row_values, kOut)) : result, times(b, all, kOut));
  });
}

}  // namespace

std::vector<CaseSource> fused_cases() {
  std::vector<CaseSource> cases;
  for (const int n_tokens : {1, 3}) {
    cases.push_back({fmt::format("sum of two products T{}", n_tokens),
                     [n_tokens](std::string_view name) { return make_sum(name, n_tokens); }});
    // The last shape has more pipeline stages than warp pairs, but less than twice as many (simt::pipeline_stages).
    for (const GateShape s :
         {GateShape{"q4_k", 768, 40, n_tokens}, {"q8_0", 1184, 96, n_tokens}, {"q6_k", 6400, 32, n_tokens}}) {
      cases.push_back({fmt::format("gate {} {}x{} T{}", s.format, s.n_in, s.n_out, n_tokens),
                       [s](std::string_view name) { return make_gate(name, s); }});
    }
    for (const int64_t wide : {2304, 4096, 6400}) {
      cases.push_back({fmt::format("gate of a row of {} T{}", wide, n_tokens),
                       [=](std::string_view name) { return make_wide(name, wide, n_tokens); }});
    }
    cases.push_back({fmt::format("gate and up in one matrix of wanted rows T{}", n_tokens),
                     [n_tokens](std::string_view name) { return make_halves_of_rows(name, n_tokens); }});
    const auto add_moe = [&](std::string_view what, const MoeShape& s) {
      cases.push_back({fmt::format("mix {} of {} T{}", what, s.n_used, n_tokens),
                       [s](std::string_view name) { return make_moe(name, s); }});
    };
    add_moe("alone", {3, 768, Extra::none, n_tokens});
    add_moe("with a shared expert", {2, 256, Extra::shared, n_tokens});
    add_moe("with a shared expert of two formats", {2, 256, Extra::shared, n_tokens, "q8_0", "q4_0"});
    add_moe("with scaled shares", {2, 256, Extra::none, n_tokens, "q8_0", "q8_0", 2.5f});
    add_moe("with a product", {2, 256, Extra::matmul, n_tokens});
    add_moe("with a row from a matmul parallel to the router", {2, 256, Extra::input, n_tokens});
    cases.push_back({fmt::format("mix of two routers T{}", n_tokens),
                     [n_tokens](std::string_view name) { return make_two_routers(name, n_tokens); }});
    cases.push_back({fmt::format("mix of rows of experts T{}", n_tokens),
                     [n_tokens](std::string_view name) { return make_moe_linear_per_expert_rows(name, n_tokens); }});
    cases.push_back({fmt::format("residual with a branch T{}", n_tokens),
                     [n_tokens](std::string_view name) { return make_branch(name, 288, n_tokens); }});
    for (const NormResidualShape s : {NormResidualShape{"q8_0", 288, n_tokens, true, false},
                                      {"q4_k", 1280, n_tokens, true, true},
                                      {"q4_k", 4608, n_tokens, false, false}}) {
      cases.push_back({fmt::format("residual of {} summed by its reader T{}", s.dim, n_tokens),
                       [s](std::string_view name) { return make_norm_residual(name, s); }});
    }
  }
  for (const char* format : {"q4_k", "q6_k", "q8_0"}) {  // prefill sizes
    const GateShape s{format, 768, 40, 40};
    cases.push_back({fmt::format("gate {} {}x{} T{}", s.format, s.n_in, s.n_out, s.n_tokens),
                     [s](std::string_view name) { return make_gate(name, s); }});
  }
  cases.push_back({"mix with a shared expert of 2 T40", [](std::string_view name) {
                     return make_moe(name, {2, 256, Extra::shared, 40});
                   }});
  return cases;
}

}  // namespace zinc::conformance
