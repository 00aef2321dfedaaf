// Ops with recurrent states: short convolution and gated delta rule.
#include <algorithm>
#include <array>

#include "backend/cpu/plan_rows.h"

namespace zinc::cpu {

void CpuPlan::run_short_conv(size_t i) {
  const Node& n = node(i);
  const int layer = n.as<ShortConvParams>().cache_layer;
  const size_t n_channels = width(n.in[0]);
  const std::vector<float>& weight = bound_[i].conv_weight;
  const size_t n_taps = weight.size() / n_channels, n_old = n_taps - 1;
  const float* x = data(n.in[0]);
  for_each_sequence([&](size_t s, size_t begin, size_t end, bool fresh) {
    float* state = cache_.conv_state(layer, in_.slots[s]);  // [taps-1][channels], oldest first
    if (fresh) std::fill_n(state, n_old * n_channels, 0.0f);
    for_each_row(end - begin, [&](size_t t) {
      const float* rows[kMaxTaps];
      for (size_t j = 0; j < n_taps; ++j) {  // inputs t - (taps-1) + j of this chunk; earlier ones come from the state
        rows[j] = t + j >= n_old ? x + (begin + t + j - n_old) * n_channels : state + (t + j) * n_channels;
      }
      kernels_.short_conv(rows, weight.data(), static_cast<int>(n_taps), n_channels,
                          data(n.out[0]) + (begin + t) * n_channels);
    });
    const auto write_state = [&](size_t t, float* to) {  // after row t
      const size_t n_new = std::min(n_old, t + 1 - begin);
      std::copy(state + n_new * n_channels, state + n_old * n_channels, to);
      std::copy(x + (t + 1 - n_new) * n_channels, x + (t + 1) * n_channels, to + (n_old - n_new) * n_channels);
    };
    if (in_.row_slots.empty()) return write_state(end - 1, state);
    size_t own_row = end;  // whose state replaces `state`, after all others have been written
    for (size_t t = begin; t < end; ++t) {
      if (in_.row_slots[t] == in_.slots[s]) {
        own_row = t;
      } else if (in_.row_slots[t] != kNoSlot) {
        write_state(t, cache_.conv_state(layer, in_.row_slots[t]));
      }
    }
    if (own_row < end) write_state(own_row, state);
  });
}

void CpuPlan::run_delta_net(size_t i) {
  const Node& n = node(i);
  const DeltaNetParams& params = n.as<DeltaNetParams>();
  const RecurrentCache& shape = cache_.layer(params.cache_layer).recurrent;
  const size_t k_dim = static_cast<size_t>(shape.k_dim), v_dim = static_cast<size_t>(shape.v_dim);
  const size_t v_heads = static_cast<size_t>(shape.heads), k_heads = static_cast<size_t>(graph_.info(n.in[1]).shape[0]);
  for_each_sequence([&](size_t s, size_t begin, size_t end, bool fresh) {
    float* states = cache_.delta_state(params.cache_layer, in_.slots[s]);
    const bool has_rows = has_row_states(in_, s);
    threads_.parallel_for(v_heads, [&](size_t first, size_t last) {
      for (size_t h = first; h < last; ++h) {
        const size_t k_head = params.sharing == HeadSharing::grouped ? h / (v_heads / k_heads) : h % k_heads;
        float* state = states + h * k_dim * v_dim;
        if (fresh) std::fill_n(state, k_dim * v_dim, 0.0f);
        std::array<float*, 1 + kMaxDraftTokens> row_states;
        for (size_t t = end, next = end - 1; has_rows && t-- > begin;) {  // without a slot: overwritten by the next one
          if (in_.row_slots[t] != kNoSlot) next = t;
          row_states[t - begin] = cache_.delta_state(params.cache_layer, in_.row_slots[next]) + h * k_dim * v_dim;
        }
        kernels_.delta_net({.q = data(n.in[0]) + (begin * k_heads + k_head) * k_dim,
                            .k = data(n.in[1]) + (begin * k_heads + k_head) * k_dim,
                            .v = data(n.in[2]) + (begin * v_heads + h) * v_dim,
                            .alpha = data(n.in[3]) + begin * v_heads + h,
                            .beta = data(n.in[4]) + begin * v_heads + h,
                            .qk_stride = k_heads * k_dim,
                            .v_stride = v_heads * v_dim,
                            .gate_stride = v_heads,
                            .out = data(n.out[0]) + (begin * v_heads + h) * v_dim,
                            .out_stride = v_heads * v_dim,
                            .state = state,
                            .row_states = has_rows ? row_states.data() : nullptr,
                            .n_tokens = static_cast<int>(end - begin),
                            .k_dim = shape.k_dim,
                            .v_dim = shape.v_dim,
                            .a = (*bound_[i].vectors[6])[h],
                            .dt_bias = (*bound_[i].vectors[5])[h],
                            .q_scale = params.q_scale});
      }
    });
  });
}

}  // namespace zinc::cpu
