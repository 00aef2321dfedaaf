// Keys and values of one head in one page: f32, f16, q8_0. Keys [k_dim][32 positions], values [32 positions][v_dim];
// q8_0 keeps its scales (one per 32 dimensions of a position) before its quants.
#include <cmath>

#include "backend/cpu/kernel/functions.h"
#include "backend/cpu/kernel/vector_math.h"
#include "graph/cache_spec.h"
#include "tensor/half.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

constexpr size_t kP = kPageTokens;

template <class T>
size_t plain_bytes(int k_dim, int v_dim) {
  return static_cast<size_t>(k_dim + v_dim) * kP * sizeof(T);
}
template <class T>
size_t plain_value_offset(int k_dim) {
  return static_cast<size_t>(k_dim) * kP * sizeof(T);
}

void write_key_f32(const float* k, int k_dim, int offset, std::byte* keys) {
  float* out = reinterpret_cast<float*>(keys) + offset;
  for (int d = 0; d < k_dim; ++d) out[static_cast<size_t>(d) * kP] = k[d];
}
void write_value_f32(const float* v, int v_dim, int offset, std::byte* values) {
  std::memcpy(values + static_cast<size_t>(offset * v_dim) * sizeof(float), v,
              static_cast<size_t>(v_dim) * sizeof(float));
}
void read_f32(const std::byte* in, int dim, float* out) {
  std::memcpy(out, in, static_cast<size_t>(dim) * kP * sizeof(float));
}

void write_key_f16(const float* k, int k_dim, int offset, std::byte* keys) {
  uint16_t* out = reinterpret_cast<uint16_t*>(keys) + offset;
  for (int d = 0; d < k_dim; ++d) out[static_cast<size_t>(d) * kP] = float_to_half(k[d]);
}
void write_value_f16(const float* v, int v_dim, int offset, std::byte* values) {
  uint16_t* out = reinterpret_cast<uint16_t*>(values) + offset * v_dim;
  int d = 0;
  for (; d + 16 <= v_dim; d += 16) f_store_half(out + d, f_load(v + d));
  for (; d < v_dim; ++d) out[d] = float_to_half(v[d]);
}
void read_f16(const std::byte* in, int dim, float* out) {
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(in);
  for (size_t i = 0; i < static_cast<size_t>(dim) * kP; i += 16) f_store(out + i, f_load_half(halves + i));
}

// Scales f16 [dim / 32][32 positions], then quants.
size_t q8_part_bytes(int dim) { return static_cast<size_t>(dim) * kP + static_cast<size_t>(dim / 32) * kP * 2; }
size_t q8_bytes(int k_dim, int v_dim) { return q8_part_bytes(k_dim) + q8_part_bytes(v_dim); }
size_t q8_value_offset(int k_dim) { return q8_part_bytes(k_dim); }

// The scale of 32 numbers, as q8_0 rounds it, and its inverse.
struct Q8Scale {
  uint16_t half;
  float inverse;
};
Q8Scale q8_scale(const float* x) {
  const float most = f_largest(f_max(f_abs(f_load(x)), f_abs(f_load(x + 16))));
  const float d = most / 127.0f;
  return {float_to_half(d), d > 0 ? 1.0f / d : 0.0f};
}

template <bool keys>
void write_q8(const float* x, int dim, int offset, std::byte* part) {
  uint16_t* scales = reinterpret_cast<uint16_t*>(part);
  int8_t* quants = reinterpret_cast<int8_t*>(part) + static_cast<size_t>(dim / 32) * kP * 2;
  for (int b = 0; b < dim / 32; ++b) {
    const Q8Scale scale = q8_scale(x + b * 32);
    scales[static_cast<size_t>(b) * kP + static_cast<size_t>(offset)] = scale.half;
    for (int i = b * 32; i < b * 32 + 32; ++i) {
      const size_t at = keys ? static_cast<size_t>(i) * kP + static_cast<size_t>(offset)
                             : static_cast<size_t>(offset) * static_cast<size_t>(dim) + static_cast<size_t>(i);
      quants[at] = static_cast<int8_t>(std::round(x[i] * scale.inverse));
    }
  }
}

void read_q8_keys(const std::byte* part, int dim, float* out) {
  const uint16_t* scales = reinterpret_cast<const uint16_t*>(part);
  const int8_t* quants = reinterpret_cast<const int8_t*>(part) + static_cast<size_t>(dim / 32) * kP * 2;
  for (size_t d = 0; d < static_cast<size_t>(dim); ++d) {
    for (size_t p = 0; p < kP; p += 16) {
      const F scale = f_load_half(scales + d / 32 * kP + p);
      f_store(out + d * kP + p, f_mul(i_to_f(i_load_s8(quants + d * kP + p)), scale));
    }
  }
}

void read_q8_values(const std::byte* part, int dim, float* out) {
  const uint16_t* scales = reinterpret_cast<const uint16_t*>(part);
  const int8_t* quants = reinterpret_cast<const int8_t*>(part) + static_cast<size_t>(dim / 32) * kP * 2;
  const size_t n = static_cast<size_t>(dim);
  for (size_t p = 0; p < kP; ++p) {
    for (size_t d = 0; d < n; d += 16) {
      const F scale = f_set(half_to_float(scales[d / 32 * kP + p]));
      f_store(out + p * n + d, f_mul(i_to_f(i_load_s8(quants + p * n + d)), scale));
    }
  }
}

constexpr KvLayout kLayouts[] = {
    {"f32", plain_bytes<float>, plain_value_offset<float>, write_key_f32, write_value_f32, read_f32, read_f32},
    {"f16", plain_bytes<uint16_t>, plain_value_offset<uint16_t>, write_key_f16, write_value_f16, read_f16, read_f16},
    {"q8_0", q8_bytes, q8_value_offset, write_q8<true>, write_q8<false>, read_q8_keys, read_q8_values},
};

}  // namespace

const KvLayout* kv_layout(std::string_view format) {
  for (const KvLayout& layout : kLayouts) {
    if (layout.format == format) return &layout;
  }
  return nullptr;
}

}  // namespace zinc::cpu::ZINC_ISA
