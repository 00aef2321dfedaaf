// Kernels over one row of activations: quantization, norms, activations, sums.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernel/functions.h"
#include "backend/cpu/kernel/vector_math.h"

namespace zinc::cpu::ZINC_ISA {

// q = round(x * 127 / max|x|) in each block. A block with an infinity or NaN has the scale NaN and quants of 0, so that
// every product with it is NaN.
void quantize(const float* x, size_t n, ActivationFormat format, int8_t* q, float* scale, int16_t* sum16,
              int16_t* sum32) {
  const size_t block = format == ActivationFormat::q8_blocks_of_32 ? 32 : 256;
  for (size_t b = 0; b * block < n; ++b) {
    const float* in = x + b * block;
    I abs_bits = i_zero();
    for (size_t i = 0; i < block; i += 16) abs_bits = i_max(abs_bits, f_abs_bits(f_load(in + i)));
    const float magnitude = max_magnitude(abs_bits), factor = quant_factor(magnitude);
    scale[b] = factor == 0 ? empty_scale(magnitude) : magnitude / 127.0f;
    for (size_t i = 0; i < block; i += 16) {
      const I quants = factor == 0 ? i_zero() : f_to_i(f_round(f_mul(f_load(in + i), f_set(factor))));
      i_store_s8(q + b * block + i, quants);
      sum16[(b * block + i) / 16] = static_cast<int16_t>(i_sum(quants));
    }
  }
  for (size_t i = 0; i < n / 32; ++i) sum32[i] = static_cast<int16_t>(sum16[2 * i] + sum16[2 * i + 1]);
}

namespace {

float sum_squares(const float* x, size_t n) {
  F sum = f_zero();
  for_each_16(n, [&](size_t i, size_t m) {
    const F v = f_load_n(x + i, m);
    sum = f_fma(v, v, sum);
  });
  return f_sum(sum);
}

}  // namespace

void rms_norm(const float* x, const float* weight, float eps, size_t n, float* out) {
  const F factor = f_set(1.0f / std::sqrt(sum_squares(x, n) / static_cast<float>(n) + eps));
  for_each_16(n, [&](size_t i, size_t m) {
    const F scaled = f_mul(f_load_n(x + i, m), factor);
    f_store_n(out + i, weight ? f_mul(scaled, f_load_n(weight + i, m)) : scaled, m);
  });
}

void l2_norm(const float* x, float eps, size_t n, float* out) {
  unary(Op::scale, x, 1.0f / std::max(std::sqrt(sum_squares(x, n)), eps), n, out);
}

namespace {

template <Op op>
F unary_of(F x, F factor);  // one specialization per unary op
template <>
F unary_of<Op::scale>(F x, F factor) {
  return f_mul(x, factor);
}
template <>
F unary_of<Op::softcap>(F x, F cap) {
  return f_softcap(x, cap);
}
template <>
F unary_of<Op::relu2>(F x, F) {
  const F positive = f_max(x, f_zero());
  return f_mul(positive, positive);
}

template <Op op>
void apply_unary(const float* x, float factor, size_t n, float* out) {
  for_each_16(n, [&](size_t i, size_t m) { f_store_n(out + i, unary_of<op>(f_load_n(x + i, m), f_set(factor)), m); });
}

}  // namespace

void unary(Op op, const float* x, float factor, size_t n, float* out) {
  switch (op) {
#define OP(name)
#define UNARY_OP(name) \
  case Op::name:       \
    return apply_unary<Op::name>(x, factor, n, out);
#include "graph/op_list.h"
#undef OP
    default:
      break;
  }
}

void add(const float* a, const float* b, size_t n, float* out) {
  for_each_16(n, [&](size_t i, size_t m) { f_store_n(out + i, f_add(f_load_n(a + i, m), f_load_n(b + i, m)), m); });
}

void mul(const float* a, const float* b, size_t n, float* out) {
  for_each_16(n, [&](size_t i, size_t m) { f_store_n(out + i, f_mul(f_load_n(a + i, m), f_load_n(b + i, m)), m); });
}

void add_scaled(const float* x, float factor, size_t n, float* sum) {
  for_each_16(n, [&](size_t i, size_t m) {
    f_store_n(sum + i, f_fma(f_load_n(x + i, m), f_set(factor), f_load_n(sum + i, m)), m);
  });
}

namespace {

F gelu(F x) {  // the tanh approximation
  const F inner = f_mul(f_mul(x, f_set(0.79788456f)), f_fma(f_mul(x, x), f_set(0.044715f), f_set(1.0f)));
  return f_mul(f_mul(x, f_set(0.5f)), f_add(f_set(1.0f), f_tanh(inner)));
}

F swiglu_oai(F gate, F up) {
  const F limit = f_set(7.0f), g = f_min(gate, limit);
  const F u = f_min(f_max(up, f_set(-7.0f)), limit);
  return f_mul(f_mul(g, f_sigmoid(f_mul(g, f_set(1.702f)))), f_add(u, f_set(1.0f)));
}

template <class Fn>
void apply(const float* gate, const float* up, size_t n, float* out, const Fn& fn) {
  for_each_16(n, [&](size_t i, size_t m) { f_store_n(out + i, fn(f_load_n(gate + i, m), f_load_n(up + i, m)), m); });
}

}  // namespace

void gated_act(Act act, const float* gate, const float* up, size_t n, float* out) {
  switch (act) {
    case Act::silu:
      return apply(gate, up, n, out, [](F g, F u) { return f_mul(f_mul(g, f_sigmoid(g)), u); });
    case Act::gelu:
      return apply(gate, up, n, out, [](F g, F u) { return f_mul(gelu(g), u); });
    case Act::sigmoid:
      return apply(gate, up, n, out, [](F g, F u) { return f_mul(f_sigmoid(g), u); });
    case Act::swiglu_oai:
      return apply(gate, up, n, out, [](F g, F u) { return swiglu_oai(g, u); });
  }
}

void short_conv(const float* const* x, const float* weight, int n_taps, size_t n, float* out) {
  for_each_16(n, [&](size_t i, size_t m) {
    F sum = f_zero();
    for (int j = 0; j < n_taps; ++j) {
      sum = f_fma(f_load_n(weight + static_cast<size_t>(j) * n + i, m), f_load_n(x[j] + i, m), sum);
    }
    f_store_n(out + i, f_mul(sum, f_sigmoid(sum)), m);
  });
}

size_t argmax(const float* x, size_t n) {
  constexpr size_t kBlockElems = 1024;  // finds the block of the maximum first, then the index in the block
  constexpr float kNegInf = -std::numeric_limits<float>::infinity();
  float max_value = kNegInf;
  size_t best_block = 0;
  for (size_t begin = 0; begin < n; begin += kBlockElems) {
    F max_lanes = f_set(kNegInf);
    size_t i = begin;
    for (const size_t end = std::min(n, begin + kBlockElems); i + 16 <= end; i += 16)
      max_lanes = f_max(f_load(x + i), max_lanes);
    float block_max = f_reduce_max(max_lanes);
    for (const size_t end = std::min(n, begin + kBlockElems); i < end; ++i) block_max = std::max(block_max, x[i]);
    if (block_max > max_value) {
      max_value = block_max;
      best_block = begin;
    }
  }
  const float *begin = x + best_block, *end = x + std::min(n, best_block + kBlockElems),
              *found = std::find(begin, end, max_value);
  return found == end ? 0 : static_cast<size_t>(found - x);
}

}  // namespace zinc::cpu::ZINC_ISA
