// short_conv and delta_net: recurrent ops, token by token. The state of a sequence is read from its slot and written to
// the slots of its rows.
#include <algorithm>
#include <cmath>

#include "backend/reference/kernels.h"

namespace zinc::reference {
namespace {

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

// Calls fn(seq, first_token, end_token, starts_fresh) for each sequence of the step.
template <class Fn>
void for_each_sequence(const StepState& step, const Fn& fn) {
  for (size_t s = 0; s + 1 < step.inputs.seq_begin.size(); ++s) {
    const int begin = step.inputs.seq_begin[s], end = step.inputs.seq_begin[s + 1];
    if (begin == end) continue;
    fn(s, begin, end, step.inputs.positions[static_cast<size_t>(begin)] == 0);
  }
}

}  // namespace

// out[t, c] = silu(sum_j weight[c, j] * x[t - (taps-1) + j, c]); inputs before the step come from the slot.
void run_short_conv(const Node& node, const StepState& step) {
  const int layer = node.as<ShortConvParams>().cache_layer;
  const std::vector<float> weight = dequantize_all(step.graph.info(node.in[1]).weight);
  const size_t n_channels = step.width(node.in[0]);
  const size_t n_taps = weight.size() / n_channels;
  for_each_sequence(step, [&](size_t s, int begin, int end, bool fresh) {
    std::vector<float> window(n_taps * n_channels);  // the state: [taps-1, channels], oldest first; the newest input
    if (!fresh) std::ranges::copy(step.cache.conv_state(layer, step.inputs.slots[s]), window.begin());
    for (int t = begin; t < end; ++t) {
      std::ranges::copy(step.row(node.in[0], t), window.end() - static_cast<ptrdiff_t>(n_channels));
      const std::span<float> out = step.row(node.out[0], t);
      for (size_t c = 0; c < n_channels; ++c) {
        float sum = 0;
        for (size_t j = 0; j < n_taps; ++j) sum += weight[c * n_taps + j] * window[j * n_channels + c];
        out[c] = sum * sigmoid(sum);
      }
      std::copy(window.begin() + static_cast<ptrdiff_t>(n_channels), window.end(), window.begin());
      const int slot = step.inputs.state_slot(s, static_cast<size_t>(t));
      if (slot == kNoSlot) continue;
      const std::span<float> state = step.cache.conv_state(layer, slot);
      std::copy_n(window.begin(), state.size(), state.begin());
    }
  });
}

// Per value head, with S its state [k_dim, v_dim], g = a * softplus(alpha + dt_bias), b = sigmoid(beta):
//   S <- exp(g) S;  d = b (v - S^T k);  S <- S + k d^T;  out = S^T (q * q_scale).
void run_delta_net(const Node& node, const StepState& step) {
  const DeltaNetParams& params = node.as<DeltaNetParams>();
  const RecurrentCache& shape = step.cache.layer(params.cache_layer).recurrent;
  const size_t k_dim = static_cast<size_t>(shape.k_dim), v_dim = static_cast<size_t>(shape.v_dim);
  const size_t v_heads = static_cast<size_t>(shape.heads);
  const size_t k_heads = static_cast<size_t>(step.graph.info(node.in[1]).shape[0]);
  const std::vector<float> dt_bias = dequantize_all(step.graph.info(node.in[5]).weight);
  const std::vector<float> a = dequantize_all(step.graph.info(node.in[6]).weight);
  for_each_sequence(step, [&](size_t s, int begin, int end, bool fresh) {
    step.threads.parallel_for(v_heads, [&](size_t first_head, size_t end_head) {
      std::vector<float> delta(v_dim), S(k_dim * v_dim);
      for (size_t h = first_head; h < end_head; ++h) {
        const size_t k_head = params.sharing == HeadSharing::grouped ? h / (v_heads / k_heads) : h % k_heads;
        const auto state_in = [&](int slot) {
          return step.cache.delta_state(params.cache_layer, slot).subspan(h * S.size(), S.size());
        };
        if (fresh) {
          std::ranges::fill(S, 0.0f);
        } else {
          std::ranges::copy(state_in(step.inputs.slots[s]), S.begin());
        }
        for (int t = begin; t < end; ++t) {
          const std::span<const float> q = step.row(node.in[0], t).subspan(k_head * k_dim, k_dim);
          const std::span<const float> k = step.row(node.in[1], t).subspan(k_head * k_dim, k_dim);
          const std::span<const float> v = step.row(node.in[2], t).subspan(h * v_dim, v_dim);
          const float decay = std::exp(a[h] * softplus(step.row(node.in[3], t)[h] + dt_bias[h]));
          const float beta = sigmoid(step.row(node.in[4], t)[h]);
          for (float& x : S) x *= decay;
          std::ranges::copy(v, delta.begin());
          for (size_t i = 0; i < k_dim; ++i) {
            for (size_t j = 0; j < v_dim; ++j) delta[j] -= S[i * v_dim + j] * k[i];
          }
          for (float& d : delta) d *= beta;
          const std::span<float> out = step.row(node.out[0], t).subspan(h * v_dim, v_dim);
          std::ranges::fill(out, 0.0f);
          for (size_t i = 0; i < k_dim; ++i) {
            for (size_t j = 0; j < v_dim; ++j) {
              S[i * v_dim + j] += k[i] * delta[j];
              out[j] += S[i * v_dim + j] * q[i] * params.q_scale;
            }
          }
          const int slot = step.inputs.state_slot(s, static_cast<size_t>(t));
          if (slot != kNoSlot) std::ranges::copy(S, state_in(slot).begin());
        }
      }
    });
  });
}

}  // namespace zinc::reference
