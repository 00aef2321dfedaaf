// Cases of attention: GQA, sliding windows, sinks, softcap, KV cache formats, pages and several sequences.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "graph/cache_spec.h"
#include "tensor/hadamard.h"
#include "tests/support/conformance.h"

namespace zinc::conformance {
namespace {

struct AttentionShape {
  int64_t heads = 4, kv_heads = 2, k_dim = 8, v_dim = 8;
  int64_t window = 0;
  float softcap = 0, scale = 0.35f, size = 1;
  bool sinks = false;
  const Format* kv_format = &k_f32;
  float kv_size = 1;  // magnitude of keys and values
};

// These values after a round trip through the KV cache format.
Doubles through_cache(const Doubles& values, const Format& format) {
  const std::vector<float> in(values.begin(), values.end());
  std::vector<std::byte> blocks(row_bytes(format, in.size()));
  std::vector<float> out(in.size());
  format.quantize(in, blocks);
  format.dequantize(blocks, out);
  return Doubles(out.begin(), out.end());
}

Doubles key_through_cache(Doubles keys, const Format& format) {
  if (!transforms_keys(format)) return through_cache(keys, format);
  std::vector<float> k(keys.begin(), keys.end());
  hadamard_32(k, kKeyFactor);
  keys = through_cache(Doubles(k.begin(), k.end()), format);
  k.assign(keys.begin(), keys.end());
  hadamard_32(k, kQueryFactor);
  return Doubles(k.begin(), k.end());
}

using History = std::map<int, std::vector<std::pair<Doubles, Doubles>>>;  // slot -> keys and values by position

// Softmax over the visible positions and the sink, which has a weight but no value.
Doubles attend(const Token& token, const AttentionShape& s, const Doubles& sinks, const History& history) {
  const auto& past = history.at(token.slot);
  const size_t k_dim = static_cast<size_t>(s.k_dim), v_dim = static_cast<size_t>(s.v_dim);
  const size_t heads = static_cast<size_t>(s.heads), per_group = heads / static_cast<size_t>(s.kv_heads);
  Doubles out(heads * v_dim);
  for (size_t h = 0; h < heads; ++h) {
    Doubles weights(past.size());
    double total = sinks.empty() ? 0 : std::exp(sinks[h]);
    for (size_t p = 0; p < past.size(); ++p) {
      if (s.window > 0 && static_cast<int64_t>(past.size() - p) > s.window) continue;
      double score = 0;
      for (size_t i = 0; i < k_dim; ++i) score += token.in[0][h * k_dim + i] * past[p].first[h / per_group * k_dim + i];
      score *= s.scale;
      if (s.softcap > 0) score = s.softcap * std::tanh(score / s.softcap);
      total += weights[p] = std::exp(score);
    }
    for (size_t p = 0; p < past.size(); ++p) {
      for (size_t i = 0; i < v_dim; ++i)
        out[h * v_dim + i] += weights[p] / total * past[p].second[h / per_group * v_dim + i];
    }
  }
  return out;
}

Case make_attention(std::string_view name, const AttentionShape& s, const std::vector<std::vector<TokenChunk>>& steps) {
  CaseBuilder m(name);
  m.kv_format(*s.kv_format);
  m.tolerance(5e-6);
  const std::vector<Value> in = m.inputs({{s.heads, s.k_dim}, {s.kv_heads, s.k_dim}, {s.kv_heads, s.v_dim}});
  m.set_generator(0,
                  [size = s.size](std::mt19937& r) { return std::uniform_real_distribution<float>(-size, size)(r); });
  for (const size_t i : {1u, 2u}) {
    m.set_generator(
        i, [size = s.kv_size](std::mt19937& r) { return std::uniform_real_distribution<float>(-size, size)(r); });
  }
  const Value sinks = s.sinks ? m.weight({s.heads}) : Value{};
  const Doubles sink_values = s.sinks ? m.dequantized(sinks) : Doubles();
  const AttentionParams params{.cache_layer = 2, .scale = s.scale, .window = s.window, .softcap = s.softcap};
  const auto history = std::make_shared<History>();
  return m.finish(m.g().attention({in[0], in[1], in[2], sinks}, params), steps, [=](const Token& token) {
    auto& past = (*history)[token.slot];
    past.resize(static_cast<size_t>(token.position));  // position 0 starts a new sequence
    past.emplace_back(key_through_cache(token.in[1], *s.kv_format), through_cache(token.in[2], *s.kv_format));
    return attend(token, s, sink_values, *history);
  });
}

// One layer writes; a later layer reads the same keys and values with its own queries.
Case make_shared(std::string_view name) {
  const AttentionShape s;
  CaseBuilder m(name);
  const std::vector<Value> in =
      m.inputs({{s.heads, s.k_dim}, {s.kv_heads, s.k_dim}, {s.kv_heads, s.v_dim}, {s.heads, s.k_dim}});
  const AttentionParams params{.cache_layer = 0, .scale = s.scale};
  const Value first = m.g().attention({in[0], in[1], in[2]}, params);
  const Value second = m.g().attention({in[3], {}, {}}, params);
  const auto history = std::make_shared<History>();
  return m.finish(m.g().concat(first, second), {{{0, 0, 5}}, {{0, 5, 1}}, {{0, 6, 30}}}, [=](const Token& token) {
    auto& past = (*history)[token.slot];
    past.emplace_back(token.in[1], token.in[2]);
    Doubles out = attend(token, s, {}, *history);
    Token other = token;
    other.in[0] = token.in[3];
    const Doubles more = attend(other, s, {}, *history);
    out.insert(out.end(), more.begin(), more.end());
    return out;
  });
}

// Two layers with different windows, so two page groups.
Case make_two_groups(std::string_view name) {
  const AttentionShape all, windowed{.window = 5};
  CaseBuilder m(name);
  const std::vector<Value> in =
      m.inputs({{all.heads, all.k_dim}, {all.kv_heads, all.k_dim}, {all.kv_heads, all.v_dim}});
  const Value a = m.g().attention({in[0], in[1], in[2]}, {.cache_layer = 1, .scale = all.scale});
  const Value b = m.g().attention({in[0], in[1], in[2]}, {.cache_layer = 0, .scale = all.scale, .window = 5});
  const auto history = std::make_shared<History>();
  return m.finish(m.g().concat(a, b), {{{1, 0, 40}, {0, 0, 3}}, {{0, 3, 1}, {1, 40, 40}}, {{1, 80, 1}}},
                  [=](const Token& token) {
                    (*history)[token.slot].emplace_back(token.in[1], token.in[2]);
                    Doubles out = attend(token, all, {}, *history);
                    const Doubles more = attend(token, windowed, {}, *history);
                    out.insert(out.end(), more.begin(), more.end());
                    return out;
                  });
}

// A norm of the queries, which are halves of packed heads; the other halves are the output gate; the result is read by
// a matmul. Backends run all of it in few kernels, for one token, for batches and for prompts.
Case make_gated(std::string_view name, const AttentionShape& s, std::string_view format) {
  constexpr int64_t kOut = 40;
  constexpr float kEps = 1e-6f;
  CaseBuilder m(name);
  m.kv_format(*s.kv_format);
  m.tolerance(1.5e-2);
  const std::vector<Value> in = m.inputs({{s.heads, 2 * s.k_dim}, {s.kv_heads, s.k_dim}, {s.kv_heads, s.v_dim}});
  const Value norm = m.weight({s.k_dim}), matrix = m.weight({kOut, s.heads * s.v_dim}, *find_format(format));
  GraphBuilder& g = m.g();
  const Value gate = g.flatten(g.slice(in[0], s.k_dim, s.k_dim));
  const Value q = g.rms_norm(g.slice(in[0], 0, s.k_dim), norm, kEps);
  const Value a = g.attention({q, in[1], in[2]}, {.cache_layer = 0, .scale = s.scale});
  const Value out = g.linear(g.gated_act(Act::sigmoid, gate, a), matrix);
  const Doubles norm_weights = m.dequantized(norm), weights = m.dequantized(matrix);
  const std::vector<std::vector<TokenChunk>> steps = {{{0, 0, 290}, {1, 0, 10}},
                                                      {{0, 290, 1}},
                                                      {{0, 291, 1}, {1, 10, 1}},
                                                      {{1, 11, 12}, {0, 292, 1}},
                                                      {{0, 293, 8}, {1, 23, 7}}};
  const auto history = std::make_shared<History>();
  return m.finish(out, steps, [=](const Token& token) {
    (*history)[token.slot].emplace_back(key_through_cache(token.in[1], *s.kv_format),
                                        through_cache(token.in[2], *s.kv_format));
    const size_t dim = static_cast<size_t>(s.k_dim), heads = static_cast<size_t>(s.heads), width = heads * dim;
    Token prepared = token;
    prepared.in[0].assign(width, 0);
    for (size_t h = 0; h < heads; ++h) {
      const double* packed = token.in[0].data() + 2 * h * dim;
      double squares = 0;
      for (size_t i = 0; i < dim; ++i) squares += packed[i] * packed[i];
      const double factor = 1 / std::sqrt(squares / static_cast<double>(dim) + double{kEps});
      for (size_t i = 0; i < dim; ++i) prepared.in[0][h * dim + i] = packed[i] * factor * norm_weights[i];
    }
    Doubles row = attend(prepared, s, {}, *history);
    for (size_t i = 0; i < width; ++i) row[i] /= 1 + std::exp(-token.in[0][i / dim * 2 * dim + dim + i % dim]);
    Doubles result(static_cast<size_t>(kOut));
    for (size_t o = 0; o < result.size(); ++o) {
      for (size_t i = 0; i < width; ++i) result[o] += weights[o * width + i] * row[i];
    }
    return result;
  });
}

}  // namespace

std::vector<CaseSource> attention_cases() {
  std::vector<CaseSource> cases;
  const std::vector<std::vector<TokenChunk>> chunks = {{{0, 0, 7}}, {{0, 7, 1}}, {{0, 8, 60}}, {{0, 68, 1}}};
  const auto add = [&](std::string_view what, const AttentionShape& s,
                       const std::vector<std::vector<TokenChunk>>& steps) {
    cases.push_back(
        {fmt::format("attention {}", what), [=](std::string_view name) { return make_attention(name, s, steps); }});
  };
  add("one token", {}, {{{0, 0, 1}}});
  add("own keys for each head", {.heads = 3, .kv_heads = 3, .k_dim = 5, .v_dim = 5}, chunks);
  add("one key head for all", {.heads = 7, .kv_heads = 1, .k_dim = 16, .v_dim = 16}, chunks);
  add("values narrower than keys", {.k_dim = 12, .v_dim = 3}, chunks);
  add("values wider than keys", {.k_dim = 4, .v_dim = 20}, chunks);
  add("window within a page", {.window = 3}, chunks);
  add("window of one", {.window = 1}, chunks);
  add("window over pages", {.window = 40}, chunks);
  add("window given back", {.window = 9}, {{{0, 0, 60}}, {{0, 60, 1}}, {{0, 61, 50}}, {{0, 111, 1}}});
  // Long enough for split-KV, in steps of all sizes.
  const std::vector<std::vector<TokenChunk>> deep = {{{0, 0, 1100}, {1, 0, 520}},
                                                     {{0, 1100, 1}, {1, 520, 1}},
                                                     {{0, 1101, 3}},
                                                     {{1, 521, 2}, {0, 1104, 2}},
                                                     {{0, 1106, 9}}};
  add("deep", {.heads = 2, .kv_heads = 1, .k_dim = 4, .v_dim = 16}, deep);
  add("deep f16", {.heads = 3, .kv_heads = 1, .k_dim = 4, .v_dim = 16, .kv_format = &k_f16}, deep);
  add("deep q8_0", {.heads = 2, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .kv_format = find_format("q8_0")}, deep);
  add("deep fp8", {.heads = 2, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .kv_format = find_format("fp8")}, deep);
  add("deep window over segments", {.heads = 2, .kv_heads = 1, .k_dim = 4, .v_dim = 5, .window = 600}, deep);
  add("deep sinks", {.heads = 2, .kv_heads = 1, .k_dim = 4, .v_dim = 4, .sinks = true}, deep);
  // Decode of sequences of different lengths, beside a prompt: rows whose chunks are split and rows whose chunks one
  // block has; a few tokens per sequence.
  const std::vector<std::vector<TokenChunk>> mixed = {{{0, 0, 530}, {1, 0, 300}, {2, 0, 10}},
                                                      {{0, 530, 1}, {1, 300, 1}, {2, 10, 1}},
                                                      {{2, 11, 12}, {0, 531, 1}, {1, 301, 1}},
                                                      {{0, 532, 8}, {1, 302, 8}, {2, 23, 2}}};
  add("many sequences", {.heads = 3, .kv_heads = 1, .k_dim = 8, .v_dim = 8}, mixed);
  add("many sequences f16", {.heads = 2, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .kv_format = &k_f16}, mixed);
  add("many sequences windowed",
      {.heads = 2, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .window = 290, .kv_format = &k_f16}, mixed);
  // More rows than have memory for all their chunks on a GPU.
  std::vector<std::vector<TokenChunk>> crowd(3);
  for (int slot = 0; slot < 20; ++slot) {
    const int length = slot < 2 ? 270 : 1;
    crowd[0].push_back({slot, 0, length});
    crowd[1].push_back({slot, length, 1});
    crowd[2].push_back({slot, length + 1, 1});
  }
  add("twenty sequences f16", {.heads = 2, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .kv_format = &k_f16}, crowd);
  // Decode over several KV chunks, whose partial results are merged.
  add("one token far on", {.heads = 2, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .kv_format = &k_f16},
      {{{0, 0, 260}}, {{0, 260, 1}}, {{0, 261, 1}}});
  // A tile of positions is full and the next one starts; the window ends inside a tile.
  const std::vector<std::vector<TokenChunk>> far = {
      {{0, 0, 318}}, {{0, 318, 1}}, {{0, 319, 1}}, {{0, 320, 1}}, {{0, 321, 1}}};
  add("one token far on, heads of 128", {.heads = 4, .kv_heads = 1, .k_dim = 128, .v_dim = 128, .kv_format = &k_f16},
      far);
  add("one token far on, windowed",
      {.heads = 3, .kv_heads = 1, .k_dim = 64, .v_dim = 64, .window = 100, .kv_format = &k_f16}, far);
  // Query heads of one KV head that cannot be split evenly; a window and sinks over several chunks.
  add("one token far on, windowed, of seven heads",
      {.heads = 7, .kv_heads = 1, .k_dim = 64, .v_dim = 64, .window = 300, .kv_format = &k_f16}, far);
  add("one token far on, with sinks",
      {.heads = 5, .kv_heads = 1, .k_dim = 64, .v_dim = 64, .sinks = true, .kv_format = &k_f16}, far);
  add("sinks", {.sinks = true}, chunks);
  add("sinks and window", {.window = 4, .sinks = true}, chunks);
  add("softcap", {.softcap = 2, .size = 8}, chunks);
  add("large scores", {.scale = 1, .size = 20}, chunks);
  add("several sequences", {}, {{{0, 0, 3}, {2, 0, 40}, {1, 0, 1}}, {{1, 1, 2}, {0, 3, 1}, {2, 40, 30}}, {{2, 70, 1}}});
  add("a slot is reused from position 0", {}, {{{0, 0, 40}}, {{0, 0, 5}}, {{0, 5, 1}}});
  for (const std::string_view format : all_kv_formats()) {
    const Format* kv_format = find_format(format);
    add(fmt::format("cache {}", format), {.k_dim = 32, .v_dim = 64, .kv_format = kv_format}, chunks);
    if (format == "f32") continue;
    add(fmt::format("cache {} windowed with sinks", format),
        {.k_dim = 64, .v_dim = 32, .window = 33, .sinks = true, .kv_format = kv_format}, chunks);
    if (kv_format->block_elems == 1) continue;
    add(fmt::format("cache {} of long heads", format),
        {.heads = 8, .kv_heads = 2, .k_dim = 128, .v_dim = 256, .scale = 0.0884f, .size = 2, .kv_format = kv_format},
        chunks);
  }
  add("cache f16 of long heads with a softcap",
      {.heads = 6,
       .kv_heads = 2,
       .k_dim = 128,
       .v_dim = 256,
       .softcap = 2,
       .scale = 0.0884f,
       .size = 2,
       .kv_format = &k_f16},
      chunks);
  add("cache f16 of several sequences", {.heads = 3, .kv_heads = 1, .k_dim = 32, .v_dim = 32, .kv_format = &k_f16},
      {{{0, 0, 3}, {2, 0, 40}, {1, 0, 1}}, {{1, 1, 2}, {0, 3, 1}, {2, 40, 30}}, {{2, 70, 1}}});
  // Outside of the range of E4M3: needs scales in both directions.
  add("cache fp8 of large numbers",
      {.heads = 8, .k_dim = 128, .v_dim = 128, .scale = 1e-4f, .kv_format = find_format("fp8"), .kv_size = 3000},
      chunks);
  add("cache fp8 of small numbers",
      {.k_dim = 256, .v_dim = 256, .scale = 5, .kv_format = find_format("fp8"), .kv_size = 0.02f}, chunks);
  // Exceeds the shared memory for tensor cores on some GPUs.
  add("heads of 512", {.k_dim = 512, .v_dim = 512, .scale = 0.04f, .kv_format = &k_f16}, chunks);
  cases.push_back({"attention to another layer's cache", make_shared});
  const auto add_gated = [&](std::string_view what, const AttentionShape& s, std::string_view format) {
    cases.push_back(
        {fmt::format("attention gated {}", what), [=](std::string_view name) { return make_gated(name, s, format); }});
  };
  add_gated("q8_0", {.heads = 8, .k_dim = 64, .v_dim = 64, .kv_format = &k_f16}, "q8_0");
  add_gated("q4_k", {.heads = 4, .k_dim = 256, .v_dim = 256, .scale = 0.06f, .kv_format = &k_f16}, "q4_k");
  add_gated("f32 cache", {.heads = 8, .k_dim = 64, .v_dim = 64}, "q8_0");
  cases.push_back({"attention in two page groups", make_two_groups});
  return cases;
}

}  // namespace zinc::conformance
