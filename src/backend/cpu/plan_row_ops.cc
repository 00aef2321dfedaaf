// Ops on single rows.
#include <algorithm>

#include "backend/cpu/plan_rows.h"

namespace zinc::cpu {

void CpuPlan::run_norm(size_t i) {
  const Node& n = node(i);
  const NormParams& params = n.as<NormParams>();
  const size_t inner_n = inner(n.in[0]), per_row = width(n.in[0]) / inner_n;
  const std::vector<float>* weight = bound_[i].vectors[1];
  for_each_row(n_rows(n.in[0]), [&](size_t t) {
    for (size_t part = t * per_row; part < (t + 1) * per_row; ++part) {
      const float* x = data(n.in[0]) + part * inner_n;
      float* out = data(n.out[0]) + part * inner_n;
      if (params.kind == NormKind::rms) {
        kernels_.rms_norm(x, weight ? weight->data() : nullptr, params.eps, inner_n, out);
      } else {
        kernels_.l2_norm(x, params.eps, inner_n, out);
      }
    }
  });
}

void CpuPlan::run_rope(size_t i) {
  const Node& n = node(i);
  const RopeTable& table = rope_tables_[static_cast<size_t>(bound_[i].rope_table)];
  const size_t n_pairs = table.n_pairs(), head_dim = inner(n.in[0]), n_heads = width(n.in[0]) / head_dim;
  const bool adjacent = table.pairs == RopePairs::adjacent;
  for_each_row(n_rows(n.in[0]), [&](size_t t) {
    const float *cos = table.cos.data() + t * n_pairs, *sin = table.sin.data() + t * n_pairs;
    for (size_t h = t * n_heads; h < (t + 1) * n_heads; ++h) {
      const float* x = data(n.in[0]) + h * head_dim;
      float* out = data(n.out[0]) + h * head_dim;
      for (size_t j = 0; j < n_pairs; ++j) {
        const size_t a = adjacent ? 2 * j : j, b = adjacent ? 2 * j + 1 : j + n_pairs;
        const float xa = x[a], xb = x[b];
        out[a] = xa * cos[j] - xb * sin[j];
        out[b] = xa * sin[j] + xb * cos[j];
      }
      std::copy(x + 2 * n_pairs, x + head_dim, out + 2 * n_pairs);
    }
  });
}

void CpuPlan::run_gated_act(size_t i) {
  const Node& n = node(i);
  const Act act = n.as<GatedActParams>().act;
  const size_t w = width(n.out[0]);
  const bool scalar_gate = width(n.in[0]) == 1 && w > 1;
  for_each_row(n_rows(n.out[0]), [&](size_t t) {
    const float* up = data(n.in[1]) + t * w;
    float* out = data(n.out[0]) + t * w;
    if (!scalar_gate) return kernels_.gated_act(act, data(n.in[0]) + t * w, up, w, out);
    for (size_t j = 0; j < w; j += 16) {  // the row's one gate, broadcast to a vector
      float gates[16];
      std::fill_n(gates, 16, data(n.in[0])[t]);
      kernels_.gated_act(act, gates, up + j, std::min<size_t>(16, w - j), out + j);
    }
  });
}

void CpuPlan::run_add(size_t i) {
  const Node& n = node(i);
  const size_t w = width(n.out[0]);
  for_each_row(n_rows(n.out[0]), [&](size_t t) {
    kernels_.add(data(n.in[0]) + t * w, data(n.in[1]) + t * w, w, data(n.out[0]) + t * w);
  });
}

void CpuPlan::run_mul(size_t i) {
  const Node& n = node(i);
  const std::vector<float>& weight = *bound_[i].vectors[1];
  const size_t w = width(n.out[0]);
  for_each_row(n_rows(n.out[0]), [&](size_t t) {
    const float* x = data(n.in[0]) + t * w;
    float* out = data(n.out[0]) + t * w;
    if (weight.size() == 1) return kernels_.unary(Op::scale, x, weight[0], w, out);
    for (size_t j = 0; j < w; j += weight.size()) kernels_.mul(x + j, weight.data(), weight.size(), out + j);
  });
}

void CpuPlan::run_unary(size_t i) {
  const Node& n = node(i);
  const float factor = unary_factor(n.params);
  const size_t w = width(n.out[0]);
  for_each_row(n_rows(n.out[0]),
               [&](size_t t) { kernels_.unary(n.op, data(n.in[0]) + t * w, factor, w, data(n.out[0]) + t * w); });
}

void CpuPlan::run_view(size_t) {}  // shares the memory of its input

void CpuPlan::run_slice(size_t i) {
  const Node& n = node(i);
  const size_t from = inner(n.in[0]), to = inner(n.out[0]), begin = static_cast<size_t>(n.as<SliceParams>().begin);
  const size_t per_row = width(n.out[0]) / to;
  for_each_row(n_rows(n.out[0]), [&](size_t t) {
    for (size_t part = t * per_row; part < (t + 1) * per_row; ++part) {
      std::copy_n(data(n.in[0]) + part * from + begin, to, data(n.out[0]) + part * to);
    }
  });
}

void CpuPlan::run_concat(size_t i) {
  const Node& n = node(i);
  const size_t a = inner(n.in[0]), b = inner(n.in[1]), per_row = width(n.in[0]) / a;
  for_each_row(n_rows(n.out[0]), [&](size_t t) {
    for (size_t part = t * per_row; part < (t + 1) * per_row; ++part) {
      float* out = data(n.out[0]) + part * (a + b);
      std::copy_n(data(n.in[0]) + part * a, a, out);
      std::copy_n(data(n.in[1]) + part * b, b, out + a);
    }
  });
}

void CpuPlan::run_rows(size_t i) {
  const Node& n = node(i);
  const size_t w = width(n.out[0]);
  for (size_t r = 0; r < in_.output_rows.size(); ++r) {
    const size_t from = has_dropped_rows_ ? r : static_cast<size_t>(in_.output_rows[r]);
    std::copy_n(data(n.in[0]) + from * w, w, data(n.out[0]) + r * w);
  }
}

void CpuPlan::run_sample(size_t i) {
  const Node& n = node(i);
  const size_t w = width(n.in[0]);
  for_each_row(in_.output_rows.size(),
               [&](size_t r) { ids(n.out[0])[r] = static_cast<int32_t>(kernels_.argmax(data(n.in[0]) + r * w, w)); });
}

}  // namespace zinc::cpu
