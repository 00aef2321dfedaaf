// The gated delta rule of one head, token by token. Prefill: 32 value dimensions at a time, whose part of the state
// stays in the L1 cache. Up to kMaxWideTokens tokens: 128 at a time, so that the state is one stream from memory. With
// S the state, per token: u = S^T k, o = S^T q (one pass over S); d = beta * (v - decay * u); S <- decay * S + k d^T;
// out = q_scale * (decay * o + (k . q) d).
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernel/functions.h"
#include "backend/cpu/kernel/vector_math.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

struct Gates {
  float decay, beta, kq;
};

// softplus = log1p(e^x), and x itself for large x. In double: the C library's float log1p differs between processors.
Gates gates_of(const DeltaTask& t, const float* k, const float* q, float alpha, float beta) {
  const float x = alpha + t.dt_bias;
  const float softplus = x > 20.0f ? x : static_cast<float>(std::log1p(std::exp(double{x})));
  F kq = f_zero();
  for_each_16(static_cast<size_t>(t.k_dim),
              [&](size_t i, size_t n) { kq = f_fma(f_load_n(k + i, n), f_load_n(q + i, n), kq); });
  return {f_first(f_exp(f_set(t.a * softplus))), f_first(f_sigmoid(f_set(beta))), f_sum(kq)};
}

// Value dimensions begin .. begin + 16 * (V - 1) + n_last - 1.
template <int V>
void run_slice(const DeltaTask& t, int begin, size_t n_last) {
  const auto load = [n_last](const float* p, int j) { return f_load_n(p + j * 16, j + 1 < V ? 16 : n_last); };
  const auto store = [n_last](float* p, int j, F x) { f_store_n(p + j * 16, x, j + 1 < V ? 16 : n_last); };
  const size_t v_dim = static_cast<size_t>(t.v_dim);
  const float* state = t.state + begin;
  for (int n = 0; n < t.n_tokens; ++n) {
    const size_t token = static_cast<size_t>(n);
    const float *q = t.q + token * t.qk_stride, *k = t.k + token * t.qk_stride, *v = t.v + token * t.v_stride + begin;
    const Gates g = gates_of(t, k, q, t.alpha[token * t.gate_stride], t.beta[token * t.gate_stride]);
    F u[V], o[V];
    for (int j = 0; j < V; ++j) u[j] = o[j] = f_zero();
    for (int i = 0; i < t.k_dim; ++i) {
      const F ki = f_set(k[i]), qi = f_set(q[i]);
      for (int j = 0; j < V; ++j) {
        const F s = load(state + static_cast<size_t>(i) * v_dim, j);
        u[j] = f_fma(s, ki, u[j]);
        o[j] = f_fma(s, qi, o[j]);
      }
    }
    const F decay = f_set(g.decay);
    F d[V];
    float* out = t.out + token * t.out_stride + begin;
    for (int j = 0; j < V; ++j) {
      d[j] = f_mul(f_set(g.beta), f_fnma(decay, u[j], load(v, j)));
      store(out, j, f_mul(f_set(t.q_scale), f_fma(decay, o[j], f_mul(f_set(g.kq), d[j]))));
    }
    float* next = (t.row_states ? t.row_states[n] : t.state) + begin;
    for (int i = 0; i < t.k_dim; ++i) {
      const F ki = f_set(k[i]);
      const size_t at = static_cast<size_t>(i) * v_dim;
      for (int j = 0; j < V; ++j) store(next + at, j, f_fma(ki, d[j], f_mul(decay, load(state + at, j))));
    }
    state = next;
  }
}

}  // namespace

void delta_net(const DeltaTask& task) {
  constexpr int kMaxWideTokens = 4;
  int begin = 0;
  if constexpr (kTileTokens >= 8) {  // where the registers hold as many sums
    for (; task.n_tokens <= kMaxWideTokens && begin + 128 <= task.v_dim; begin += 128) run_slice<8>(task, begin, 16);
  }
  for (; begin + 32 <= task.v_dim; begin += 32) run_slice<2>(task, begin, 16);
  for (; begin < task.v_dim; begin += 16)
    run_slice<1>(task, begin, static_cast<size_t>(std::min(16, task.v_dim - begin)));
}

}  // namespace zinc::cpu::ZINC_ISA
