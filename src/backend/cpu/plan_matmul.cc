// Ops with weight matrices: embed, linear, expert matmuls and routing.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/plan_rows.h"

namespace zinc::cpu {
namespace {

// Activations of a block of tokens: they stay in the L2 cache while panels are streamed.
constexpr size_t kTokenBlockBytes = 256 * 1024;

void add_bias(const std::vector<float>& bias, size_t begin, size_t end, float* row) {
  for (size_t o = begin; o < end; ++o) row[o] += bias[o];
}

float dot(const float* a, const float* b, size_t n) {
  float sums[16] = {};
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    for (size_t j = 0; j < 16; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (; i < n; ++i) sums[i % 16] += a[i] * b[i];
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

// Formats without a panel kernel: rows are dequantized one by one and multiplied in f32.
void multiply_dequantized(const Matrix& matrix, size_t stack, std::span<const TokenActivation> activations,
                          float* const* outs, size_t first, size_t end, float* row) {
  const size_t n_in = static_cast<size_t>(matrix.n_in), n_out = static_cast<size_t>(matrix.n_out);
  const size_t row_size = row_bytes(*matrix.view.format, n_in);
  for (size_t o = first * kPanelRows; o < std::min(n_out, end * kPanelRows); ++o) {
    const size_t offset = (stack * n_out + o) * row_size;
    matrix.view.format->dequantize(matrix.view.bytes.subspan(offset, row_size), {row, n_in});
    for (size_t t = 0; t < activations.size(); ++t) outs[t][o] = dot(activations[t].f32, row, n_in);
  }
}

}  // namespace

void CpuPlan::run_embed(size_t i) {
  const TensorView& table = graph_.info(node(i).in[0]).weight;
  const size_t dim = width(node(i).out[0]), n_bytes = row_bytes(*table.format, dim);
  float* out = data(node(i).out[0]);
  for_each_row(tokens_.size(), [&](size_t t) {
    const size_t offset = static_cast<size_t>(tokens_[t]) * n_bytes;
    table.format->dequantize(table.bytes.subspan(offset, n_bytes), {out + t * dim, dim});
  });
  weights_.note_rows_read(graph_.info(node(i).in[0]), tokens_.size());
}

void CpuPlan::run_hidden_in(size_t i) { std::ranges::copy(in_.hidden, data(node(i).out[0])); }

// Panels first..end-1 of one matrix, all tokens: outs[t][o] = row o times the activations of token t.
void CpuPlan::multiply(const Matrix& matrix, size_t stack, std::span<const TokenActivation> activations,
                       float* const* outs, size_t first, size_t end) const {
  if (!matrix.format) {
    return multiply_dequantized(matrix, stack, activations, outs, first, end, thread_scratch().row.as<float>());
  }
  const size_t n_blocks = static_cast<size_t>(matrix.n_in) / matrix.format->block_elems;
  const size_t n_out = static_cast<size_t>(matrix.n_out), tile = static_cast<size_t>(kernels_.tile_tokens);
  const size_t activation_row_bytes =
      static_cast<size_t>(matrix.n_in) * (matrix.format->activation_format == ActivationFormat::f32 ? 4 : 1);
  const size_t block = std::max(tile, kTokenBlockBytes / activation_row_bytes / tile * tile);
  for (size_t t0 = 0; t0 < activations.size(); t0 += block) {
    const size_t t_end = std::min(activations.size(), t0 + block);
    for (size_t p = first; p < end; ++p) {
      const uint8_t* panel = matrix.panel(stack, p);
      const size_t o = p * kPanelRows;
      for (size_t t = t0; t < t_end; t += tile) {
        const size_t n = std::min(tile, t_end - t);
        float* tile_outs[kMaxTileTokens];
        float edge[kMaxTileTokens][kPanelRows];
        const bool is_full_panel = o + kPanelRows <= n_out;
        for (size_t j = 0; j < n; ++j) tile_outs[j] = is_full_panel ? outs[t + j] + o : edge[j];
        matrix.format->kernels[n - 1](panel, n_blocks, activations.data() + t, tile_outs);
        for (size_t j = 0; j < n && !is_full_panel; ++j) std::copy_n(edge[j], n_out - o, outs[t + j] + o);
      }
    }
  }
}

void CpuPlan::run_linear(size_t i) {
  const std::vector<size_t>& joined = bound_[i].joined;
  size_t n_panels = 0, n_activations = 0;
  for (size_t m = 0; m < joined.size(); ++m) {  // activations are quantized before the parallel loop
    const size_t j = joined[m];
    const Matrix& matrix = *bound_[j].matrix;
    n_activations = activations_of(node(j).in[0], matrix.activation_format(), static_cast<size_t>(matrix.n_in)).size();
    for (size_t t = 0; t < n_activations; ++t) {
      out_rows_[m * n_activations + t] = data(node(j).out[0]) + t * static_cast<size_t>(matrix.n_out);
    }
    n_panels += matrix.n_panels();
  }
  threads_.parallel_for(n_panels, [&](size_t first, size_t end) {
    size_t before = 0;  // panels of the matrices before this one
    for (size_t m = 0; m < joined.size() && before < end; ++m) {
      const size_t n = bound_[joined[m]].matrix->n_panels();
      const size_t from = std::max(first, before), to = std::min(end, before + n);
      if (from < to)
        multiply_linear(joined[m], {out_rows_.data() + m * n_activations, n_activations}, from - before, to - before);
      before += n;
    }
  });
}

// Panels first..end-1 of a linear node, all tokens, with bias.
void CpuPlan::multiply_linear(size_t i, std::span<float* const> outs, size_t first, size_t end) const {
  const Matrix& matrix = *bound_[i].matrix;
  const size_t n_out = static_cast<size_t>(matrix.n_out);
  const ActivationSet& set = activation_sets_[static_cast<size_t>(matrix.activation_format())];
  multiply(matrix, 0, std::span(set.activations).first(outs.size()), outs.data(), first, end);
  const std::vector<float>* bias = bound_[i].vectors[2];
  if (!bias) return;
  for (float* row : outs) add_bias(*bias, first * kPanelRows, std::min(n_out, end * kPanelRows), row);
}

void CpuPlan::run_moe_route(size_t i) {
  const Node& n = node(i);
  const MoeRouteParams& params = n.as<MoeRouteParams>();
  const size_t n_experts = width(n.in[0]), n_experts_used = static_cast<size_t>(params.n_used);
  for (size_t t = 0; t < n_rows(n.in[0]); ++t) {
    const float* logits = data(n.in[0]) + t * n_experts;
    const auto larger = [logits](int32_t a, int32_t b) {  // the lower id first among equals
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    std::iota(route_order_.begin(), route_order_.end(), 0);
    const auto end = route_order_.begin() + static_cast<ptrdiff_t>(n_experts);
    std::partial_sort(route_order_.begin(), route_order_.begin() + params.n_used, end, larger);
    int32_t* selected = ids(n.out[0]) + t * n_experts_used;
    float* weights = data(n.out[1]) + t * n_experts_used;
    std::copy_n(route_order_.begin(), n_experts_used, selected);
    const float max_logit = logits[selected[0]];
    float sum_all = 0, sum_selected = 0;
    for (size_t e = 0; e < n_experts; ++e) sum_all += route_scores_[e] = std::exp(logits[e] - max_logit);
    for (size_t u = 0; u < n_experts_used; ++u)
      sum_selected += weights[u] = route_scores_[static_cast<size_t>(selected[u])];
    const float total = params.weights == RouterNormalization::softmax ? sum_all : sum_selected;
    for (size_t u = 0; u < n_experts_used; ++u) weights[u] = weights[u] / total * params.scale;
  }
}

// Sorts the (token, selected expert) pairs by expert, so that an expert's weights are read once for all its tokens.
void CpuPlan::group_by_expert(std::span<const int32_t> selected, size_t n_experts) {
  std::fill_n(expert_begin_.begin(), n_experts + 1, 0);
  for (int32_t e : selected) ++expert_begin_[static_cast<size_t>(e) + 1];
  active_experts_.clear();
  for (size_t e = 0; e < n_experts; ++e) {
    if (expert_begin_[e + 1] > 0) active_experts_.push_back(static_cast<int32_t>(e));
    expert_begin_[e + 1] += expert_begin_[e];
  }
  for (size_t i = 0; i < selected.size(); ++i) {
    sorted_pairs_[static_cast<size_t>(expert_begin_[static_cast<size_t>(selected[i])]++)] = static_cast<int32_t>(i);
  }
  for (size_t e = n_experts; e > 0; --e) expert_begin_[e] = expert_begin_[e - 1];
  expert_begin_[0] = 0;
}

void CpuPlan::run_moe_linear(size_t i) {
  const Node& n = node(i);
  const Matrix& matrix = *bound_[i].matrix;
  const std::span<const TokenActivation> activations =
      activations_of(n.in[0], matrix.activation_format(), static_cast<size_t>(matrix.n_in));
  const size_t n_experts_used = width(n.in[2]), n_pairs = n_rows(n.in[2]) * n_experts_used;
  const size_t n_out = static_cast<size_t>(matrix.n_out), n_panels = matrix.n_panels();
  group_by_expert({ids(n.in[2]), n_pairs}, static_cast<size_t>(matrix.n_stack));
  const bool shares_input = graph_.info(n.in[0]).shape.n_dims() == 1;
  for (size_t s = 0; s < n_pairs; ++s) {
    const size_t pair = static_cast<size_t>(sorted_pairs_[s]);
    sorted_activations_[s] = activations[shares_input ? pair / n_experts_used : pair];
    sorted_outs_[s] = data(n.out[0]) + pair * n_out;
  }
  const std::vector<float>*bias = bound_[i].vectors[3], *scale = bound_[i].vectors[4];
  threads_.parallel_for(active_experts_.size() * n_panels, [&](size_t first, size_t end) {
    while (first < end) {  // consecutive panels of one expert at a time
      const size_t expert = static_cast<size_t>(active_experts_[first / n_panels]);
      const size_t p = first % n_panels, p_end = std::min(n_panels, p + end - first);
      const size_t s = static_cast<size_t>(expert_begin_[expert]);
      const size_t n_activations = static_cast<size_t>(expert_begin_[expert + 1]) - s;
      multiply(matrix, expert, {sorted_activations_.data() + s, n_activations}, sorted_outs_.data() + s, p, p_end);
      const size_t o_end = std::min(n_out, p_end * kPanelRows);
      for (size_t pair_idx = s; pair_idx < s + n_activations; ++pair_idx) {
        for (size_t o = p * kPanelRows; o < o_end; ++o) {
          if (scale) sorted_outs_[pair_idx][o] *= (*scale)[expert];
          if (bias) sorted_outs_[pair_idx][o] += (*bias)[expert * n_out + o];
        }
      }
      first += p_end - p;
    }
  });
}

void CpuPlan::run_moe_combine(size_t i) {
  const Node& n = node(i);
  const size_t n_experts_used = width(n.in[1]), dim = width(n.out[0]);
  for_each_row(n_rows(n.out[0]), [&](size_t t) {
    float* out = data(n.out[0]) + t * dim;
    std::fill_n(out, dim, 0.0f);
    for (size_t u = 0; u < n_experts_used; ++u) {
      kernels_.add_scaled(data(n.in[0]) + (t * n_experts_used + u) * dim, data(n.in[1])[t * n_experts_used + u], dim,
                          out);
    }
  });
}

}  // namespace zinc::cpu
