// Cases of embed, linear and moe_linear: every weight format, odd shapes, biases and scales.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/gpu/panel_format.h"
#include "tests/support/conformance.h"

namespace zinc::conformance {
namespace {

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double magnitude_of_dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] * b[i]);
  return sum;
}

// Scale of the error of a dot product with activations quantized to 8 bits. Each is rounded by up to 1/254 of the
// largest of its block, uniformly and independently: the standard deviation of the sum is |w| * max / 254 / sqrt(3).
// Six times that is much less than the terms' magnitude in long rows: a single wrong segment of 256 inputs is detected.
double magnitude_of_quantized_dot(std::span<const double> x, std::span<const double> w) {
  double largest = 0;
  for (const double e : x) largest = std::max(largest, std::abs(e));
  return std::min(magnitude_of_dot(x, w), 6 / std::sqrt(3.0) * largest * std::sqrt(dot(w, w)));
}

// Row o of [.., n_in] values.
std::span<const double> row(const Doubles& values, size_t o, size_t n_in) {
  return std::span(values).subspan(o * n_in, n_in);
}

constexpr std::string_view kScaleKinds[] = {"q4_k", "q6_k", "q8_0", "q4_1"};  // one per kind of scale

struct LinearShape {
  int64_t n_in, n_out;
  int n_tokens;
  int64_t n_heads = 1;  // inputs per token
  bool bias = false;
};

Case make_linear(std::string_view name, const Format& format, const LinearShape& s) {
  CaseBuilder m(name);
  const std::vector<Value> in = s.n_heads > 1 ? m.inputs({{s.n_heads, s.n_in}}) : m.inputs({{s.n_in}});
  const Value weight = m.weight({s.n_out, s.n_in}, format);
  const Value bias = s.bias ? m.weight({s.n_out}) : Value{};
  const Doubles w = m.dequantized(weight), b = s.bias ? m.dequantized(bias) : Doubles(static_cast<size_t>(s.n_out));
  const auto magnitude_of = format.block_elems > 1 ? magnitude_of_quantized_dot : magnitude_of_dot;
  return m.finish(m.g().linear(in[0], weight, bias), {{{0, 0, s.n_tokens}}}, [=](const Token& token) {
    const size_t n_in = static_cast<size_t>(s.n_in);
    Doubles out;
    double magnitude = 0;
    for (size_t h = 0; h < static_cast<size_t>(s.n_heads); ++h) {
      for (size_t o = 0; o < b.size(); ++o) {
        out.push_back(dot(row(token.in[0], h, n_in), row(w, o, n_in)) + b[o]);
        magnitude = std::max(magnitude, magnitude_of(row(token.in[0], h, n_in), row(w, o, n_in)));
      }
    }
    return ExpectedRow(out, magnitude);
  });
}

Case make_embed(std::string_view name, const Format& format) {
  constexpr int kVocabulary = 11;
  CaseBuilder m(name);
  m.vocabulary(kVocabulary);
  const size_t width = format.block_elems * size_t{2};
  const Value table = m.weight({kVocabulary, static_cast<int64_t>(width)}, format);
  const Doubles values = m.dequantized(table);
  return m.finish(m.g().embed(table), {{{0, 0, 9}}}, [=](const Token& token) {
    const std::span<const double> r = row(values, static_cast<size_t>(token.id), width);
    return Doubles(r.begin(), r.end());
  });
}

struct ExpertShape {
  bool input_per_expert, bias, scale;
  int n_tokens = 6;
};

Case make_moe_linear(std::string_view name, const Format& format, const ExpertShape& s) {
  constexpr int64_t kExperts = 5, kUsed = 2, kOut = 3;
  const int64_t n_in = format.block_elems * int64_t{2};
  CaseBuilder m(name);
  const std::vector<Value> in =
      s.input_per_expert ? m.inputs({{kExperts}, {kUsed, n_in}}) : m.inputs({{kExperts}, {n_in}});
  const Value weight = m.weight({kExperts, kOut, n_in}, format);
  const Value bias = s.bias ? m.weight({kExperts, kOut}) : Value{}, scale = s.scale ? m.weight({kExperts}) : Value{};
  const Doubles w = m.dequantized(weight);
  const Doubles b = s.bias ? m.dequantized(bias) : Doubles(kExperts * kOut);
  const Doubles f = s.scale ? m.dequantized(scale) : Doubles(kExperts, 1.0);
  const Value ids = m.g().moe_route(in[0], {.n_used = kUsed}).ids;
  return m.finish(m.g().moe_linear(in[1], {weight, bias, scale}, ids), {{{0, 0, s.n_tokens}}}, [=](const Token& token) {
    Doubles logits = token.in[0], out;
    double magnitude = 0;
    for (size_t u = 0; u < kUsed; ++u) {
      const size_t e = static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      logits[e] = -1e9;
      const size_t n = static_cast<size_t>(n_in);
      const std::span<const double> x = row(token.in[1], s.input_per_expert ? u : 0, n);
      for (size_t o = 0; o < kOut; ++o) {
        out.push_back(dot(x, row(w, e * kOut + o, n)) * f[e] + b[e * kOut + o]);
        magnitude = std::max(magnitude, magnitude_of_dot(x, row(w, e * kOut + o, n)));
      }
    }
    return ExpectedRow(out, magnitude);
  });
}

}  // namespace

std::vector<CaseSource> linear_cases() {
  std::vector<CaseSource> cases;
  const auto add_linear = [&](const Format& format, const LinearShape& s) {
    cases.push_back({fmt::format("linear {} {}x{} T{} heads{}{}", format.name, s.n_in, s.n_out, s.n_tokens, s.n_heads,
                                 s.bias ? " bias" : ""),
                     [&format, s](std::string_view name) { return make_linear(name, format, s); }});
  };
  for (const Format* format : weight_formats()) {
    const int64_t block = format->block_elems;
    add_linear(*format, {.n_in = block, .n_out = 1, .n_tokens = 1});
    add_linear(*format, {.n_in = 3 * block, .n_out = 7, .n_tokens = 5, .bias = true});
    cases.push_back(
        {fmt::format("embed {}", format->name), [format](std::string_view name) { return make_embed(name, *format); }});
    cases.push_back({fmt::format("moe_linear {}", format->name), [format](std::string_view name) {
                       return make_moe_linear(name, *format, {false, false, false});
                     }});
  }
  for (const int64_t n_in : {7, 33, 130}) add_linear(k_f32, {.n_in = n_in, .n_out = 33, .n_tokens = 3});
  for (const int64_t n_in : {7, 33, 130}) add_linear(k_f16, {.n_in = n_in, .n_out = 65, .n_tokens = 2});
  add_linear(*find_format("q8_0"), {.n_in = 64, .n_out = 5, .n_tokens = 3, .n_heads = 3, .bias = true});
  // Decode: a partial last K segment, segments that cannot be distributed evenly, more rows than fit one batch.
  for (const char* name : {"q8_0", "mxfp4"}) add_linear(*find_format(name), {.n_in = 2880, .n_out = 40, .n_tokens = 1});
  for (const char* name : {"q4_k", "q6_k"}) add_linear(*find_format(name), {.n_in = 768, .n_out = 33, .n_tokens = 1});
  add_linear(*find_format("q4_k"), {.n_in = 4096, .n_out = 64, .n_tokens = 1, .bias = true});
  add_linear(*find_format("q5_k"), {.n_in = 256, .n_out = 20000, .n_tokens = 1});
  add_linear(*find_format("q6_k"), {.n_in = 21504, .n_out = 64, .n_tokens = 1});
  add_linear(*find_format("q4_k"),
             {.n_in = 2048, .n_out = 64, .n_tokens = 3});  // uses all of a block's space for partial sums
  add_linear(k_f16, {.n_in = 4100, .n_out = 33, .n_tokens = 1});
  add_linear(k_f32, {.n_in = 16, .n_out = 4, .n_tokens = 70});
  for (const std::string_view format : kScaleKinds) {  // at prefill sizes
    add_linear(*find_format(format), {.n_in = 768, .n_out = 70, .n_tokens = 70});
  }
  // One tile more than the emulated GPU has multiprocessors: the last tile is split in two.
  for (const char* format : {"q4_k", "mxfp4"}) {
    add_linear(*find_format(format), {.n_in = 256, .n_out = 896, .n_tokens = 70});
  }
  // Tiles of 8, 16, 32 and 64 columns, full and not.
  for (const int n_tokens : {2, 5, 8, 9, 17, 33, 64}) {
    add_linear(*find_format("q4_k"), {.n_in = 512, .n_out = 40, .n_tokens = n_tokens, .bias = true});
  }
  for (const gpu::PanelFormat* const* f = gpu::kPanelFormats; *f; ++f) {  // the other packed formats, smaller
    const bool is_added = std::ranges::find(kScaleKinds, (*f)->name) != std::end(kScaleKinds);
    if ((*f)->q8_block == 0 || is_added) continue;
    add_linear(*find_format((*f)->name), {.n_in = 256, .n_out = 40, .n_tokens = 33});
  }
  for (const char* name : {"q4_k", "q6_k", "q8_0", "mxfp4"}) {  // enough tokens to be grouped by expert
    const Format* format = find_format(name);
    cases.push_back({fmt::format("moe_linear {} T40", name), [format](std::string_view of) {
                       return make_moe_linear(of, *format, {false, true, false, 40});
                     }});
  }
  for (const ExpertShape s :
       {ExpertShape{true, false, false}, {false, true, false}, {true, true, true}, {false, false, true}}) {
    for (const Format* format : {&k_f32, find_format("q8_0")}) {
      cases.push_back({fmt::format("moe_linear {}{}{}{}", format->name, s.input_per_expert ? " own inputs" : "",
                                   s.bias ? " bias" : "", s.scale ? " scale" : ""),
                       [format, s](std::string_view name) { return make_moe_linear(name, *format, s); }});
    }
  }
  return cases;
}

}  // namespace zinc::conformance
