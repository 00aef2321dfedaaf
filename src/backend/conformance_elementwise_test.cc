// Cases of elementwise ops and of copies.
#include <fmt/format.h>

#include <cmath>

#include "tests/support/conformance.h"

namespace zinc::conformance {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double gate, double up) { return gate * sigmoid(gate) * up; }
double gelu(double gate, double up) {
  return gate / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (gate + 0.044715 * std::pow(gate, 3)))) * up;
}
double gate_only(double gate, double up) { return sigmoid(gate) * up; }
double swiglu_oai(double gate, double up) {
  const double g = gate > 7 ? 7 : gate, u = up > 7 ? 7 : up < -7 ? -7 : up;
  return g / (1 + std::exp(-1.702 * g)) * (u + 1);
}

Case make_gated(std::string_view name, Act act, double (*expected)(double, double), int64_t gate_width) {
  CaseBuilder m(name);
  const std::vector<Value> in = m.inputs({{gate_width}, {3, 11}});
  for (size_t i : {size_t{0}, size_t{1}}) {  // large enough for the clamps at 7
    m.set_generator(i, [](std::mt19937& r) { return std::uniform_real_distribution<float>(-10, 10)(r); });
  }
  return m.finish(m.g().gated_act(act, in[0], in[1]), {{{0, 0, 5}}}, [=](const Token& token) {
    Doubles out;
    for (size_t i = 0; i < token.in[1].size(); ++i) {
      out.push_back(expected(token.in[0][token.in[0].size() == 1 ? 0 : i], token.in[1][i]));
    }
    return out;
  });
}

// A function of two inputs of one shape.
Case make_pairwise(std::string_view name, const std::function<Value(CaseBuilder&, Value, Value)>& build,
                   double (*expected)(double, double)) {
  CaseBuilder m(name);
  const std::vector<Value> in = m.inputs({{2, 9}, {2, 9}});
  return m.finish(build(m, in[0], in[1]), {{{0, 0, 3}}}, [=](const Token& token) {
    Doubles out;
    for (size_t i = 0; i < token.in[0].size(); ++i) out.push_back(expected(token.in[0][i], token.in[1][i]));
    return out;
  });
}

Case make_mul(std::string_view name, int64_t width, const Format& format) {
  CaseBuilder m(name);
  const Value x = m.inputs({{3, 32}})[0];
  const Value weight = m.weight({width}, format);
  const Doubles w = m.dequantized(weight);
  return m.finish(m.g().mul(x, weight), {{{0, 0, 4}}}, [=](const Token& token) {
    Doubles out;
    for (size_t i = 0; i < token.in[0].size(); ++i) out.push_back(token.in[0][i] * w[i % w.size()]);
    return out;
  });
}

Case make_slice(std::string_view name, int64_t begin, int64_t length) {
  CaseBuilder m(name);
  const Value x = m.inputs({{3, 10}})[0];
  return m.finish(m.g().slice(x, begin, length), {{{0, 0, 4}}}, [=](const Token& token) {
    Doubles out;
    for (int64_t head = 0; head < 3; ++head) {
      for (int64_t i = begin; i < begin + length; ++i) out.push_back(token.in[0][static_cast<size_t>(head * 10 + i)]);
    }
    return out;
  });
}

Case make_concat(std::string_view name) {
  CaseBuilder m(name);
  const std::vector<Value> in = m.inputs({{2, 3}, {2, 5}});
  return m.finish(m.g().concat(in[0], in[1]), {{{0, 0, 4}}}, [](const Token& token) {
    Doubles out;
    for (size_t head = 0; head < 2; ++head) {
      for (size_t i = 0; i < 3; ++i) out.push_back(token.in[0][head * 3 + i]);
      for (size_t i = 0; i < 5; ++i) out.push_back(token.in[1][head * 5 + i]);
    }
    return out;
  });
}

// Only some rows are output rows; the others have different values.
Case make_rows(std::string_view name) {
  CaseBuilder m(name);
  const Value x = m.inputs({{4}})[0];
  const auto every_third = [](int row) { return row % 3 == 1; };
  return m.finish(
      m.g().scale(x, 1), {{{0, 0, 8}, {1, 5, 4}}, {{1, 9, 2}}}, [](const Token& token) { return token.in[0]; },
      every_third);
}

// Few distinct logits, so that ties are common: the lowest id must win (first_mismatch checks the sampled tokens).
Case make_sample(std::string_view name) {
  CaseBuilder m(name);
  const Value x = m.inputs({{37}})[0];
  m.set_generator(0, [](std::mt19937& r) { return static_cast<float>(r() % 4); });
  return m.finish(x, {{{0, 0, 40}}}, [](const Token& token) { return token.in[0]; });
}

}  // namespace

std::vector<CaseSource> elementwise_cases() {
  std::vector<CaseSource> cases;
  struct ActCase {
    const char* name;
    Act act;
    double (*expected)(double, double);
  };
  for (const ActCase& a : {ActCase{"silu", Act::silu, silu},
                           {"gelu", Act::gelu, gelu},
                           {"sigmoid", Act::sigmoid, gate_only},
                           {"swiglu_oai", Act::swiglu_oai, swiglu_oai}}) {
    for (const int64_t width : {33, 1}) {
      cases.push_back({fmt::format("gated_act {}{}", a.name, width == 1 ? " one gate" : ""),
                       [a, width](std::string_view name) { return make_gated(name, a.act, a.expected, width); }});
    }
  }
  const auto add_pairwise = [&](std::string_view name, std::function<Value(CaseBuilder&, Value, Value)> build,
                                double (*expected)(double, double)) {
    cases.push_back({std::string(name), [=](std::string_view full) { return make_pairwise(full, build, expected); }});
  };
  add_pairwise(
      "add", [](CaseBuilder& m, Value a, Value b) { return m.g().add(a, b); },
      [](double a, double b) { return a + b; });
  add_pairwise(
      "scale", [](CaseBuilder& m, Value a, Value) { return m.g().scale(a, -0.75f); },
      [](double a, double) { return a * -0.75; });
  add_pairwise(
      "softcap", [](CaseBuilder& m, Value a, Value) { return m.g().softcap(m.g().scale(a, 64), 30); },
      [](double a, double) { return 30 * std::tanh(a * 64 / 30); });
  add_pairwise(
      "relu2", [](CaseBuilder& m, Value a, Value) { return m.g().relu2(a); },
      [](double a, double) { return a > 0 ? a * a : 0; });
  for (const int64_t width : {32, 1}) {
    cases.push_back(
        {fmt::format("mul {}", width), [width](std::string_view name) { return make_mul(name, width, k_f32); }});
  }
  cases.push_back({"mul q8_0", [](std::string_view name) { return make_mul(name, 32, *find_format("q8_0")); }});
  for (const auto& [begin, length] : {std::pair<int64_t, int64_t>{0, 3}, {4, 6}, {3, 1}}) {
    cases.push_back(
        {fmt::format("slice {} {}", begin, length),
         [begin = begin, length = length](std::string_view name) { return make_slice(name, begin, length); }});
  }
  cases.push_back({"concat", make_concat});
  cases.push_back({"rows", make_rows});
  cases.push_back({"sample", make_sample});
  return cases;
}

}  // namespace zinc::conformance
