// One head's keys and values in a page, in each KV cache format: f32, f16, q8_0, q4_0. Keys [k_dim][32 positions],
// values [32 positions][v_dim]; quantized formats store their scales (one per 32 dimensions of a position) before their
// quants. A page type defines how 16 elements are loaded as floats, and how one position is written.
#pragma once

#include <algorithm>
#include <cmath>

#include "backend/cpu/kernel/vector_math.h"
#include "graph/cache_spec.h"
#include "tensor/hadamard.h"
#include "tensor/half.h"

namespace zinc::cpu::ZINC_ISA {

static_assert(kPageTokens == 32, "two vectors of positions per page");

// The Hadamard transform of a block (tensor/hadamard.h).
inline void hadamard_32(float* x, float factor) {
  for (size_t step = 1; step < 32; step *= 2) {
    for (size_t first = 0; first < 32; first += 2 * step) {
      for (size_t i = first; i < first + step; ++i) {
        const float a = x[i], b = x[i + step];
        x[i] = a + b;
        x[i + step] = a - b;
      }
    }
  }
  for (size_t i = 0; i < 32; ++i) x[i] *= factor;
}

// Kind: Stored (the element type), load(const Stored*) -> F, store(Stored*, float).
template <class Kind>
struct PlainPage {
  using Stored = typename Kind::Stored;
  static constexpr int kValueBytes = sizeof(Stored);
  static constexpr bool kTransformsKeys = false;
  static size_t key_bytes(int k_dim) { return static_cast<size_t>(k_dim) * kPageTokens * sizeof(Stored); }
  static size_t value_bytes(int v_dim) { return key_bytes(v_dim); }

  PlainPage(const std::byte* page, int k_dim, int n_values)
      : keys(reinterpret_cast<const Stored*>(page)),
        values(reinterpret_cast<const Stored*>(page + key_bytes(k_dim))),
        v_dim(static_cast<size_t>(n_values)) {}

  F key(size_t d, size_t position) const { return Kind::load(keys + d * kPageTokens + position); }
  F value(size_t position, size_t d) const { return Kind::load(values + position * v_dim + d); }
  F load_values_16(size_t i) const { return Kind::load(values + i); }  // from index i, row-major

  static void write_key(const float* k, int k_dim, int position, std::byte* region) {
    Stored* out = reinterpret_cast<Stored*>(region) + position;
    for (size_t d = 0; d < static_cast<size_t>(k_dim); ++d) Kind::store(out + d * kPageTokens, k[d]);
  }
  static void write_value(const float* v, int n, int position, std::byte* region) {
    Stored* out = reinterpret_cast<Stored*>(region) + static_cast<size_t>(position) * static_cast<size_t>(n);
    for (int d = 0; d < n; ++d) Kind::store(out + d, v[d]);
  }

  const Stored *keys, *values;
  size_t v_dim;
};

struct F32Element {
  using Stored = float;
  static F load(const float* p) { return f_load(p); }
  static void store(float* p, float x) { *p = x; }
};
struct F16Element {
  using Stored = uint16_t;
  static F load(const uint16_t* p) { return f_load_half(p); }
  static void store(uint16_t* p, float x) { *p = float_to_half(x); }
};
using F32Page = PlainPage<F32Element>;
using F16Page = PlainPage<F16Element>;

// Scales f16 [dim / 32][32 positions], then quants. REQUIRES: dimensions in multiples of 32.
struct Q8Page {
  static constexpr int kValueBytes = 1;
  static constexpr bool kTransformsKeys = false;
  static size_t scale_bytes(int dim) { return static_cast<size_t>(dim / 32) * kPageTokens * 2; }
  static size_t key_bytes(int k_dim) { return static_cast<size_t>(k_dim) * kPageTokens + scale_bytes(k_dim); }
  static size_t value_bytes(int v_dim) { return key_bytes(v_dim); }

  Q8Page(const std::byte* page, int k_dim, int n_values)
      : key_scales(reinterpret_cast<const uint16_t*>(page)),
        value_scales(reinterpret_cast<const uint16_t*>(page + key_bytes(k_dim))),
        keys(reinterpret_cast<const int8_t*>(page + scale_bytes(k_dim))),
        values(reinterpret_cast<const int8_t*>(page + key_bytes(k_dim) + scale_bytes(n_values))),
        v_dim(static_cast<size_t>(n_values)) {}

  F key(size_t d, size_t position) const {
    return f_mul(i_to_f(i_load_s8(keys + d * kPageTokens + position)),
                 f_load_half(key_scales + d / 32 * kPageTokens + position));
  }
  F value(size_t position, size_t d) const {
    const F scale = f_set(half_to_float(value_scales[d / 32 * kPageTokens + position]));
    return f_mul(i_to_f(i_load_s8(values + position * v_dim + d)), scale);
  }
  F load_values_16(size_t i) const { return value(i / v_dim, i % v_dim); }

  static void write_key(const float* k, int k_dim, int position, std::byte* region) {
    write(k, k_dim, position, region, kPageTokens, static_cast<size_t>(position));
  }
  static void write_value(const float* v, int n, int position, std::byte* region) {
    write(v, n, position, region, 1, static_cast<size_t>(position) * static_cast<size_t>(n));
  }

  // Quant i of the position goes to quants[begin + i * stride].
  static void write(const float* x, int dim, int position, std::byte* region, size_t stride, size_t begin) {
    uint16_t* scales = reinterpret_cast<uint16_t*>(region) + position;
    int8_t* quants = reinterpret_cast<int8_t*>(region + scale_bytes(dim)) + begin;
    for (size_t b = 0; b < static_cast<size_t>(dim / 32); ++b, x += 32) {
      const float magnitude = max_magnitude(i_max(f_abs_bits(f_load(x)), f_abs_bits(f_load(x + 16))));
      const bool is_empty = quant_factor(magnitude) == 0;
      const float d = is_empty ? empty_scale(magnitude) : magnitude / 127.0f;
      const float inverse = is_empty ? 0.0f : 1.0f / d;
      scales[b * kPageTokens] = float_to_half(d);
      for (size_t i = 0; i < 32; ++i) {
        quants[(b * 32 + i) * stride] = is_empty ? int8_t{0} : static_cast<int8_t>(std::round(x[i] * inverse));
      }
    }
  }

  const uint16_t *key_scales, *value_scales;
  const int8_t *keys, *values;
  size_t v_dim;
};

// Keys after a Hadamard transform. Scales as in Q8Page, then quants of four bits: dimension d of a block of 32 is in
// the low nibble, d + 16 in the high one. REQUIRES: dimensions in multiples of 32.
struct Q4Page {
  static constexpr int kValueBytes = 1;  // for prefetching: twice what is read
  static constexpr bool kTransformsKeys = true;
  static size_t scale_bytes(int dim) { return Q8Page::scale_bytes(dim); }
  static size_t key_bytes(int k_dim) { return static_cast<size_t>(k_dim / 2) * kPageTokens + scale_bytes(k_dim); }
  static size_t value_bytes(int v_dim) { return key_bytes(v_dim); }

  Q4Page(const std::byte* page, int k_dim, int n_values)
      : key_scales(reinterpret_cast<const uint16_t*>(page)),
        value_scales(reinterpret_cast<const uint16_t*>(page + key_bytes(k_dim))),
        keys(reinterpret_cast<const uint8_t*>(page + scale_bytes(k_dim))),
        values(reinterpret_cast<const uint8_t*>(page + key_bytes(k_dim) + scale_bytes(n_values))),
        v_dim(static_cast<size_t>(n_values)) {}

  // Index of dimension d's byte among those of a position, and its nibble.
  static size_t byte_of(size_t d) { return d / 32 * 16 + d % 16; }
  static F load(const uint8_t* bytes, size_t d) {
    const int shift = d % 32 < 16 ? 0 : 4;
    int8_t quants[16];
    for (size_t i = 0; i < 16; ++i) quants[i] = static_cast<int8_t>((bytes[i] >> shift & 15) - 8);
    return i_to_f(i_load_s8(quants));
  }
  F key(size_t d, size_t position) const {
    return f_mul(load(keys + byte_of(d) * kPageTokens + position, d),
                 f_load_half(key_scales + d / 32 * kPageTokens + position));
  }
  F value(size_t position, size_t d) const {
    const F scale = f_set(half_to_float(value_scales[d / 32 * kPageTokens + position]));
    return f_mul(load(values + position * (v_dim / 2) + byte_of(d), d), scale);
  }
  F load_values_16(size_t i) const { return value(i / v_dim, i % v_dim); }

  static void write_key(const float* k, int k_dim, int position, std::byte* region) {
    write<true>(k, k_dim, position, region, kPageTokens, static_cast<size_t>(position));
  }
  static void write_value(const float* v, int n, int position, std::byte* region) {
    write<false>(v, n, position, region, 1, static_cast<size_t>(position) * static_cast<size_t>(n / 2));
  }

  // Rounds as tensor/format/q4_0.cc. Byte i of the position goes to quants[begin + i * stride].
  template <bool is_key>
  static void write(const float* from, int dim, int position, std::byte* region, size_t stride, size_t begin) {
    uint16_t* scales = reinterpret_cast<uint16_t*>(region) + position;
    uint8_t* quants = reinterpret_cast<uint8_t*>(region + scale_bytes(dim)) + begin;
    for (size_t b = 0; b < static_cast<size_t>(dim / 32); ++b) {
      float x[32];
      std::copy_n(from + b * 32, 32, x);
      if constexpr (is_key) hadamard_32(x, kKeyFactor);
      float positive = 0, negative = 0;  // largest magnitudes
      for (size_t i = 0; i < 32; ++i) {
        positive = x[i] > positive ? x[i] : positive;
        negative = -x[i] > negative ? -x[i] : negative;
      }
      const float d = positive > negative ? positive / -8.0f : negative / 8.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
      scales[b * kPageTokens] = float_to_half(d);
      for (size_t i = 0; i < 16; ++i) {
        quants[(b * 16 + i) * stride] =
            static_cast<uint8_t>(quantize(x[i], inverse) | quantize(x[i + 16], inverse) << 4);
      }
    }
  }
  static int quantize(float x, float inverse) {
    const float q = std::floor(x * inverse + 8.5f);
    return std::isnan(q) ? 8 : q > 15 ? 15 : q < 0 ? 0 : static_cast<int>(q);
  }

  const uint16_t *key_scales, *value_scales;
  const uint8_t *keys, *values;
  size_t v_dim;
};

}  // namespace zinc::cpu::ZINC_ISA
