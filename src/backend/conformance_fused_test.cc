// Cases of whole parts of a layer, which backends run as few kernels in a step of one token and as more in larger ones:
// gates, experts with a shared one beside them, norms before the residual. Widths and counts are such that segments and
// units cannot be shared out evenly.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tests/support/conformance.h"

namespace zinc::conformance {
namespace {

constexpr double kChainTolerance = 1.5e-2;  // two products of rounded activations, one behind the other
constexpr float kEps = 1e-6f;

// ---- expectations ----

// A matrix of a stack, times x.
Numbers times(const Numbers& matrices, const Numbers& x, size_t n_out, size_t which = 0) {
  Numbers out(n_out);
  for (size_t o = 0; o < n_out; ++o) {
    for (size_t k = 0; k < x.size(); ++k) out[o] += matrices[(which * n_out + o) * x.size() + k] * x[k];
  }
  return out;
}

Numbers normed(const Numbers& x, const Numbers& weights = {}) {
  double sum = 0;
  for (double v : x) sum += v * v;
  const double factor = 1 / std::sqrt(sum / static_cast<double>(x.size()) + double{kEps});
  Numbers out(x);
  for (size_t i = 0; i < x.size(); ++i) out[i] *= factor * (weights.empty() ? 1 : weights[i]);
  return out;
}

Numbers sum(Numbers a, const Numbers& b, double factor = 1) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += factor * b[i];
  return a;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

Numbers gated(const Numbers& gate, const Numbers& up) {
  Numbers out(gate);
  for (size_t i = 0; i < gate.size(); ++i) out[i] = gate[i] * sigmoid(gate[i]) * up[i];
  return out;
}

// ---- a sum ----

// Of two products, either of which could be made with it.
Case make_sum(std::string_view name, int n_tokens) {
  constexpr int64_t kIn = 288, kOut = 40;
  CaseMaker m(name);
  const std::vector<Value> in = m.inputs({{kIn}, {kIn}});
  const Value a = m.weight({kOut, kIn}, *find_format("q8_0")), b = m.weight({kOut, kIn}, *find_format("q4_0"));
  m.tolerance(kChainTolerance);
  const Numbers first = m.numbers(a), second = m.numbers(b);
  return m.finish(
      m.g().add(m.g().linear(in[0], a), m.g().linear(in[1], b)), {{{0, 0, n_tokens}}},
      [=](const Token& token) { return sum(times(first, token.in[0], kOut), times(second, token.in[1], kOut)); });
}

// ---- a gate ----

struct GateShape {
  const char* format;
  int64_t n_in, n_out;
  int n_tokens;
};

// gate and up of a normed row.
Case make_gate(std::string_view name, const GateShape& s) {
  CaseMaker m(name);
  const Value x = m.inputs({{s.n_in}})[0], norm = m.weight({s.n_in});
  const Format& format = *find_format(s.format);
  const Value gate = m.weight({s.n_out, s.n_in}, format), up = m.weight({s.n_out, s.n_in}, format);
  const Value h = m.g().rms_norm(x, norm, kEps);
  const Value out = m.g().gated_act(Act::silu, m.g().linear(h, gate), m.g().linear(h, up));
  m.tolerance(kChainTolerance);
  const Numbers n = m.numbers(norm), g = m.numbers(gate), u = m.numbers(up);
  return m.finish(out, {{{0, 0, s.n_tokens}}}, [=](const Token& token) {
    const Numbers row = normed(token.in[0], n);
    const size_t n_out = static_cast<size_t>(s.n_out);
    return gated(times(g, row, n_out), times(u, row, n_out));
  });
}

// From a product through a wide row into gate and up, back and onto the input: what a backend may have of a product
// before the one ahead of it is done, and what it reads of a row at once.
Case make_wide(std::string_view name, int64_t wide, int n_tokens) {
  constexpr int64_t kRow = 256;
  CaseMaker m(name);
  GraphBuilder& g = m.g();
  const Format& q4 = *find_format("q4_k");
  const Value x = m.inputs({{kRow}})[0], norm = m.weight({wide}), into = m.weight({wide, kRow}, q4);
  const Value gate = m.weight({kRow, wide}, q4), up = m.weight({kRow, wide}, q4), back = m.weight({kRow, kRow}, q4);
  const Value h = g.rms_norm(g.linear(x, into), norm, kEps);
  const Value out = g.add(g.linear(g.gated_act(Act::silu, g.linear(h, gate), g.linear(h, up)), back), x);
  m.tolerance(3 * kChainTolerance);  // three products in a row, one of them squared, as it were
  const Numbers n = m.numbers(norm), i = m.numbers(into), a = m.numbers(gate), u = m.numbers(up), b = m.numbers(back);
  return m.finish(out, {{{0, 0, n_tokens}}}, [=](const Token& token) {
    const Numbers row = normed(times(i, token.in[0], static_cast<size_t>(wide)), n);
    return sum(times(b, gated(times(a, row, kRow), times(u, row, kRow)), kRow), token.in[0]);
  });
}

// gate and up in one matrix, of the rows that are wanted.
Case make_halves_of_rows(std::string_view name, int n_tokens) {
  constexpr int64_t kIn = 1024, kHalf = 256;
  CaseMaker m(name);
  GraphBuilder& g = m.g();
  const Format& q8 = *find_format("q8_0");
  const Value x = m.inputs({{kIn}})[0], before = m.weight({kIn, kIn}, q8), both = m.weight({2 * kHalf, kIn}, q8);
  const Value h = g.linear(g.rows(g.linear(x, before)), both);
  const Value out = g.gated_act(Act::silu, g.slice(h, 0, kHalf), g.slice(h, kHalf, kHalf));
  m.has_rows();
  m.tolerance(kChainTolerance);
  const Numbers of_before = m.numbers(before), of_both = m.numbers(both);
  return m.finish(out, {{{0, 0, n_tokens}}}, [=](const Token& token) {
    const Numbers halves = times(of_both, times(of_before, token.in[0], kIn), 2 * kHalf);
    return gated(Numbers(halves.begin(), halves.begin() + kHalf), Numbers(halves.begin() + kHalf, halves.end()));
  });
}

// ---- experts ----

// What is beside the experts: added to their sum before the residual, or, of a product beside the router, their row.
enum class Beside { nothing, shared, product, row };

struct MixShape {
  int64_t n_used, ff_dim;
  Beside beside;
  int n_tokens;
  const char *gate = "q8_0", *up = "q8_0";  // of the shared expert
  float factor = 1;                         // of the experts' shares, by a node of its own
};

constexpr int64_t kDim = 512, kExperts = 6;

struct Experts {
  Value router, gate, up, down;
};

Value routed(GraphBuilder& g, Value logits, Value row, const Experts& w, const MixShape& s) {
  auto [ids, shares] = g.moe_route(logits, {.n_used = s.n_used, .weights = RouteWeights::softmax_of_chosen});
  if (s.factor != 1) shares = g.scale(shares, s.factor);
  const Value act = g.gated_act(Act::silu, g.moe_linear(row, {w.gate}, ids), g.moe_linear(row, {w.up}, ids));
  return g.moe_combine(g.moe_linear(act, {w.down}, ids), shares);
}

struct ExpertNumbers {
  Numbers router, gate, up, down;
};

// h: the router's row; row: the experts'.
Numbers expected_routed(const Numbers& h, const Numbers& row, const ExpertNumbers& w, const MixShape& s) {
  const size_t n_used = static_cast<size_t>(s.n_used), ff_dim = static_cast<size_t>(s.ff_dim);
  Numbers logits = times(w.router, h, kExperts), out(kDim);
  std::vector<size_t> chosen;
  double total = 0;
  for (size_t u = 0; u < n_used; ++u) {
    const size_t best = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
    chosen.push_back(best);
    total += std::exp(logits[best]);
    logits[best] = -1e9;
  }
  const Numbers fresh = times(w.router, h, kExperts);
  for (size_t e : chosen) {
    const Numbers act = gated(times(w.gate, row, ff_dim, e), times(w.up, row, ff_dim, e));
    out = sum(out, times(w.down, act, kDim, e), double{s.factor} * std::exp(fresh[e]) / total);
  }
  return out;
}

// A layer's feed-forward of experts with the residual.
Case make_mix(std::string_view name, const MixShape& s) {
  CaseMaker m(name);
  GraphBuilder& g = m.g();
  const Format& q8 = *find_format("q8_0");
  const Value x = m.inputs({{kDim}})[0], h = g.rms_norm(x, m.weight_of({kDim}, std::vector<float>(kDim, 0.125f)), kEps);
  const Experts w{m.weight({kExperts, kDim}), m.weight({kExperts, s.ff_dim, kDim}, q8),
                  m.weight({kExperts, s.ff_dim, kDim}, q8), m.weight({kExperts, kDim, s.ff_dim}, q8)};
  const Value scalar = m.weight({1, kDim}), beside = m.weight({kDim, kDim}, q8);
  Value out = routed(g, g.linear(h, w.router), s.beside == Beside::row ? g.linear(h, beside) : h, w, s);
  const Value gate = m.weight({s.ff_dim, kDim}, *find_format(s.gate)),
              up = m.weight({s.ff_dim, kDim}, *find_format(s.up));
  const Value down = m.weight({kDim, s.ff_dim}, q8);
  if (s.beside == Beside::shared) {
    const Value act = g.gated_act(Act::silu, g.linear(h, gate), g.linear(h, up));
    out = g.add(out, g.gated_act(Act::sigmoid, g.linear(h, scalar), g.linear(act, down)));
  } else if (s.beside == Beside::product) {
    out = g.add(out, g.linear(h, beside));
  }
  m.tolerance(kChainTolerance);
  const ExpertNumbers n{m.numbers(w.router), m.numbers(w.gate), m.numbers(w.up), m.numbers(w.down)};
  const Numbers of_scalar = m.numbers(scalar), of_beside = m.numbers(beside), of_gate = m.numbers(gate),
                of_up = m.numbers(up), of_down = m.numbers(down);
  return m.finish(g.add(out, x), {{{0, 0, s.n_tokens}}}, [=](const Token& token) {
    const Numbers row = normed(token.in[0], Numbers(kDim, 0.125));
    const size_t ff_dim = static_cast<size_t>(s.ff_dim);
    const Numbers product = times(of_beside, row, kDim), &own = s.beside == Beside::row ? product : row;
    const Numbers all = sum(expected_routed(row, own, n, s), token.in[0]);
    if (s.beside == Beside::product) return sum(all, product);
    if (s.beside != Beside::shared) return all;
    const Numbers act = gated(times(of_gate, row, ff_dim), times(of_up, row, ff_dim));
    return sum(all, times(of_down, act, kDim), sigmoid(times(of_scalar, row, 1)[0]));
  });
}

// Two sets of experts of one row, whose logits are all there before any of them is found.
Case make_two_routers(std::string_view name, int n_tokens) {
  constexpr int64_t kFf = 256;
  const MixShape s{2, kFf, Beside::nothing, n_tokens};
  CaseMaker m(name);
  GraphBuilder& g = m.g();
  const Format& q8 = *find_format("q8_0");
  const Value x = m.inputs({{kDim}})[0], h = g.rms_norm(x, m.weight_of({kDim}, std::vector<float>(kDim, 0.125f)), kEps);
  std::array<Experts, 2> w;
  std::array<ExpertNumbers, 2> n;
  std::array<Value, 2> logits;
  for (size_t i = 0; i < 2; ++i) {
    w[i] = {m.weight({kExperts, kDim}), m.weight({kExperts, kFf, kDim}, q8), m.weight({kExperts, kFf, kDim}, q8),
            m.weight({kExperts, kDim, kFf}, q8)};
    n[i] = {m.numbers(w[i].router), m.numbers(w[i].gate), m.numbers(w[i].up), m.numbers(w[i].down)};
    logits[i] = g.linear(h, w[i].router);
  }
  const Value first = routed(g, logits[0], h, w[0], s), second = routed(g, logits[1], h, w[1], s);
  m.tolerance(kChainTolerance);
  return m.finish(g.add(first, second), {{{0, 0, n_tokens}}}, [=](const Token& token) {
    const Numbers row = normed(token.in[0], Numbers(kDim, 0.125));
    return sum(expected_routed(row, row, n[0], s), expected_routed(row, row, n[1], s));
  });
}

// Experts that a router finds, each with a row of its own.
Case make_rows_of_experts(std::string_view name, int n_tokens) {
  constexpr int64_t kUsed = 2, kOut = 40;
  CaseMaker m(name);
  const std::vector<Value> in = m.inputs({{kDim}, {kUsed, kDim}});
  const Value router = m.weight({kExperts, kDim}), experts = m.weight({kExperts, kOut, kDim}, *find_format("q8_0"));
  const Value ids = m.g().moe_route(m.g().linear(in[0], router), {.n_used = kUsed}).ids;
  m.tolerance(kChainTolerance);
  const Numbers r = m.numbers(router), w = m.numbers(experts);
  return m.finish(m.g().moe_linear(in[1], {experts}, ids), {{{0, 0, n_tokens}}}, [=](const Token& token) {
    Numbers logits = times(r, token.in[0], kExperts), out;
    for (size_t u = 0; u < kUsed; ++u) {
      const size_t best = static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
      logits[best] = -1e9;
      const auto row = token.in[1].begin() + static_cast<ptrdiff_t>(u * kDim);
      const Numbers its = times(w, Numbers(row, row + kDim), kOut, best);
      out.insert(out.end(), its.begin(), its.end());
    }
    return out;
  });
}

// ---- the residual ----

// What blocks give is normed before it is added, the second time two of them; of the first sum a branch is normed and
// scaled by itself, and read by a product.
Case make_branch(std::string_view name, int64_t dim, int n_tokens) {
  CaseMaker m(name);
  GraphBuilder& g = m.g();
  const float factor = 1 / std::sqrt(static_cast<float>(dim));
  std::array<Value, 4> w;
  std::array<Numbers, 4> n;
  for (size_t i = 0; i < w.size(); ++i) n[i] = m.numbers(w[i] = m.weight({dim, dim}, *find_format("q8_0")));
  const Value in = m.inputs({{dim}})[0], norm = m.weight({dim}), scales = m.weight({dim});
  const auto normed_by = [&](Value v, Value weights) { return g.rms_norm(v, weights, kEps); };
  const Value x = g.add(in, normed_by(g.linear(in, w[0]), norm));
  const Value branch = g.mul(g.scale(normed_by(x, {}), factor), scales), h = normed_by(x, norm);
  const Value both = g.add(normed_by(g.linear(h, w[1]), norm), normed_by(g.linear(h, w[2]), {}));
  const Value out = g.add(g.add(x, normed_by(both, norm)), g.linear(branch, w[3]));
  m.tolerance(kChainTolerance);
  const Numbers by = m.numbers(norm), f = m.numbers(scales);
  return m.finish(out, {{{0, 0, n_tokens}}}, [=](const Token& token) {
    const size_t width = static_cast<size_t>(dim);
    const Numbers first = sum(token.in[0], normed(times(n[0], token.in[0], width), by)), row = normed(first, by);
    Numbers its_branch = normed(first);
    for (size_t i = 0; i < width; ++i) its_branch[i] *= double{factor} * f[i];
    const Numbers of_both = sum(normed(times(n[1], row, width), by), normed(times(n[2], row, width)));
    return sum(sum(first, normed(of_both, by)), times(n[3], its_branch, width));
  });
}

struct SummedShape {
  const char* format;
  int64_t dim;
  int n_tokens;
  bool is_scaled, is_gate;
};

// What a block gives is normed and added, and the sum normed for a product, or for a gate and what goes through it;
// another product reads the sum later.
Case make_summed(std::string_view name, const SummedShape& s) {
  constexpr int64_t kIn = 64, kOut = 40;
  CaseMaker m(name);
  GraphBuilder& g = m.g();
  const std::vector<Value> in = m.inputs({{s.dim}, {kIn}});
  const Format& format = *find_format(s.format);
  const Value made = m.weight({s.dim, kIn}, *find_format("q8_0")), norm = m.weight({s.dim}), scale = m.weight({1});
  const Value first = m.weight({kOut, s.dim}, format), second = m.weight({kOut, s.dim}, format);
  Value x = g.add(in[0], g.rms_norm(g.linear(in[1], made), norm, kEps));
  if (s.is_scaled) x = g.mul(x, scale);
  const Value row = g.rms_norm(x, norm, kEps), up = m.weight({kOut, s.dim}, format);
  const Value h = s.is_gate ? g.gated_act(Act::silu, g.linear(row, first), g.linear(row, up)) : g.linear(row, first);
  m.tolerance(s.is_gate ? 2 * kChainTolerance : kChainTolerance);  // a gate's errors are those of both
  const Numbers w = m.numbers(made), by = m.numbers(norm), a = m.numbers(first), b = m.numbers(second),
                c = m.numbers(up);
  const double factor = s.is_scaled ? m.numbers(scale)[0] : 1;
  const size_t width = static_cast<size_t>(s.dim);
  return m.finish(g.add(h, g.linear(x, second)), {{{0, 0, s.n_tokens}}}, [=](const Token& token) {
    Numbers all = sum(token.in[0], normed(times(w, token.in[1], width), by));
    for (double& v : all) v *= factor;
    const Numbers its = normed(all, by), made_of_it = times(a, its, kOut);
    return sum(s.is_gate ? gated(made_of_it, times(c, its, kOut)) : made_of_it, times(b, all, kOut));
  });
}

}  // namespace

std::vector<CaseSource> fused_cases() {
  std::vector<CaseSource> cases;
  for (const int n_tokens : {1, 3}) {
    cases.push_back({fmt::format("sum of two products T{}", n_tokens),
                     [n_tokens](std::string_view name) { return make_sum(name, n_tokens); }});
    // The last one's blocks have more slots than pairs of warps, but not twice as many (simt::slots_of).
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
    const auto add_mix = [&](std::string_view what, const MixShape& s) {
      cases.push_back({fmt::format("mix {} of {} T{}", what, s.n_used, n_tokens),
                       [s](std::string_view name) { return make_mix(name, s); }});
    };
    add_mix("alone", {3, 768, Beside::nothing, n_tokens});
    add_mix("with a shared expert", {2, 256, Beside::shared, n_tokens});
    add_mix("with a shared expert of two formats", {2, 256, Beside::shared, n_tokens, "q8_0", "q4_0"});
    add_mix("with scaled shares", {2, 256, Beside::nothing, n_tokens, "q8_0", "q8_0", 2.5f});
    add_mix("with a product", {2, 256, Beside::product, n_tokens});
    add_mix("with a row from beside the router", {2, 256, Beside::row, n_tokens});
    cases.push_back({fmt::format("mix of two routers T{}", n_tokens),
                     [n_tokens](std::string_view name) { return make_two_routers(name, n_tokens); }});
    cases.push_back({fmt::format("mix of rows of experts T{}", n_tokens),
                     [n_tokens](std::string_view name) { return make_rows_of_experts(name, n_tokens); }});
    cases.push_back({fmt::format("residual with a branch T{}", n_tokens),
                     [n_tokens](std::string_view name) { return make_branch(name, 288, n_tokens); }});
    for (const SummedShape s : {SummedShape{"q8_0", 288, n_tokens, true, false},
                                {"q4_k", 1280, n_tokens, true, true},
                                {"q4_k", 4608, n_tokens, false, false}}) {
      cases.push_back({fmt::format("residual of {} summed by its reader T{}", s.dim, n_tokens),
                       [s](std::string_view name) { return make_summed(name, s); }});
    }
  }
  for (const char* format : {"q4_k", "q6_k", "q8_0"}) {  // as prompts are multiplied
    const GateShape s{format, 768, 40, 40};
    cases.push_back({fmt::format("gate {} {}x{} T{}", s.format, s.n_in, s.n_out, s.n_tokens),
                     [s](std::string_view name) { return make_gate(name, s); }});
  }
  cases.push_back({"mix with a shared expert of 2 T40", [](std::string_view name) {
                     return make_mix(name, {2, 256, Beside::shared, 40});
                   }});
  return cases;
}

}  // namespace zinc::conformance
