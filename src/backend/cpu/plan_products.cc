// The plan's products: embed, linear, expert matrices and their routing.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/plan_rows.h"

namespace zinc::cpu {
namespace {

// Columns worked on at a time: as many as stay in the second-level cache while panels stream past.
constexpr size_t kColumnBlockBytes = 256 * 1024;

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

// Rows of formats without a panel kernel: decoded one by one, multiplied in f32.
void multiply_decoded(const Matrix& matrix, size_t stack, std::span<const Column> columns, float* const* outs,
                      size_t first, size_t end, float* row) {
  const size_t n_in = static_cast<size_t>(matrix.n_in), n_out = static_cast<size_t>(matrix.n_out);
  const size_t row_size = row_bytes(*matrix.view.format, n_in);
  for (size_t o = first * kPanelRows; o < std::min(n_out, end * kPanelRows); ++o) {
    const size_t at = (stack * n_out + o) * row_size;
    matrix.view.format->decode(matrix.view.bytes.subspan(at, row_size), {row, n_in});
    for (size_t c = 0; c < columns.size(); ++c) outs[c][o] = dot(columns[c].f32, row, n_in);
  }
}

}  // namespace

void CpuPlan::run_embed(size_t i) {
  const TensorView& table = graph_.info(node(i).in[0]).weight;
  const size_t dim = width(node(i).out[0]), n_bytes = row_bytes(*table.format, dim);
  float* out = data(node(i).out[0]);
  for_each_row(tokens_.size(), [&](size_t t) {
    const size_t at = static_cast<size_t>(tokens_[t]) * n_bytes;
    table.format->decode(table.bytes.subspan(at, n_bytes), {out + t * dim, dim});
  });
  weights_.note_rows_read(graph_.info(node(i).in[0]), tokens_.size());
}

void CpuPlan::run_hidden_in(size_t i) { std::ranges::copy(in_.hidden, data(node(i).out[0])); }

// Panels first..end-1 of one matrix, all columns: outs[c][o] = row o times column c.
void CpuPlan::multiply(const Matrix& matrix, size_t stack, std::span<const Column> columns, float* const* outs,
                       size_t first, size_t end) const {
  if (!matrix.format) {
    return multiply_decoded(matrix, stack, columns, outs, first, end, own_scratch().row.as<float>());
  }
  const size_t n_blocks = static_cast<size_t>(matrix.n_in) / matrix.format->block_elems;
  const size_t n_out = static_cast<size_t>(matrix.n_out), tile = static_cast<size_t>(kernels_.tile_columns);
  const size_t column_size = static_cast<size_t>(matrix.n_in) * (matrix.format->column_kind == ColumnKind::f32 ? 4 : 1);
  const size_t block = std::max(tile, kColumnBlockBytes / column_size / tile * tile);
  for (size_t c0 = 0; c0 < columns.size(); c0 += block) {
    const size_t c_end = std::min(columns.size(), c0 + block);
    for (size_t p = first; p < end; ++p) {
      const uint8_t* panel = matrix.panel(stack, p);
      const size_t o = p * kPanelRows;
      for (size_t c = c0; c < c_end; c += tile) {
        const size_t n = std::min(tile, c_end - c);
        float* rows[kMaxTileColumns];
        float edge[kMaxTileColumns][kPanelRows];
        const bool whole = o + kPanelRows <= n_out;
        for (size_t j = 0; j < n; ++j) rows[j] = whole ? outs[c + j] + o : edge[j];
        matrix.format->kernels[n - 1](panel, n_blocks, columns.data() + c, rows);
        for (size_t j = 0; j < n && !whole; ++j) std::copy_n(edge[j], n_out - o, outs[c + j] + o);
      }
    }
  }
}

void CpuPlan::run_linear(size_t i) {
  const std::vector<size_t>& together = bound_[i].together;
  size_t n_panels = 0, n_columns = 0;
  for (size_t m = 0; m < together.size(); ++m) {  // the columns are made before the threads part
    const size_t j = together[m];
    const Matrix& matrix = *bound_[j].matrix;
    n_columns = columns_of(node(j).in[0], matrix.column_kind(), static_cast<size_t>(matrix.n_in)).size();
    for (size_t c = 0; c < n_columns; ++c) {
      out_rows_[m * n_columns + c] = data(node(j).out[0]) + c * static_cast<size_t>(matrix.n_out);
    }
    n_panels += matrix.n_panels();
  }
  threads_.parallel_for(n_panels, [&](size_t first, size_t end) {
    size_t before = 0;  // panels of the matrices before this one
    for (size_t m = 0; m < together.size() && before < end; ++m) {
      const size_t n = bound_[together[m]].matrix->n_panels();
      const size_t from = std::max(first, before), to = std::min(end, before + n);
      if (from < to)
        multiply_linear(together[m], {out_rows_.data() + m * n_columns, n_columns}, from - before, to - before);
      before += n;
    }
  });
}

// Panels first..end-1 of a linear node, all columns.
void CpuPlan::multiply_linear(size_t i, std::span<float* const> outs, size_t first, size_t end) const {
  const Matrix& matrix = *bound_[i].matrix;
  const size_t n_out = static_cast<size_t>(matrix.n_out);
  const ColumnSet& set = column_sets_[static_cast<size_t>(matrix.column_kind())];
  multiply(matrix, 0, std::span(set.columns).first(outs.size()), outs.data(), first, end);
  const std::vector<float>* bias = bound_[i].vectors[2];
  if (!bias) return;
  for (float* row : outs) add_bias(*bias, first * kPanelRows, std::min(n_out, end * kPanelRows), row);
}

void CpuPlan::run_moe_route(size_t i) {
  const Node& n = node(i);
  const MoeRouteParams& params = n.as<MoeRouteParams>();
  const size_t n_experts = width(n.in[0]), n_used = static_cast<size_t>(params.n_used);
  for (size_t t = 0; t < n_rows(n.in[0]); ++t) {
    const float* logits = data(n.in[0]) + t * n_experts;
    const auto larger = [logits](int32_t a, int32_t b) {  // the lower id first among equals
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    std::iota(route_order_.begin(), route_order_.end(), 0);
    const auto end = route_order_.begin() + static_cast<ptrdiff_t>(n_experts);
    std::partial_sort(route_order_.begin(), route_order_.begin() + params.n_used, end, larger);
    int32_t* chosen = ids(n.out[0]) + t * n_used;
    float* weights = data(n.out[1]) + t * n_used;
    std::copy_n(route_order_.begin(), n_used, chosen);
    const float largest = logits[chosen[0]];
    float all = 0, used = 0;
    for (size_t e = 0; e < n_experts; ++e) all += route_scores_[e] = std::exp(logits[e] - largest);
    for (size_t u = 0; u < n_used; ++u) used += weights[u] = route_scores_[static_cast<size_t>(chosen[u])];
    const float total = params.weights == RouteWeights::softmax ? all : used;
    for (size_t u = 0; u < n_used; ++u) weights[u] = weights[u] / total * params.scale;
  }
}

// Sorts the pairs (token, use) by expert, so that an expert's weights are read once for all its tokens.
void CpuPlan::group_by_expert(std::span<const int32_t> chosen, size_t n_experts) {
  std::fill_n(expert_begin_.begin(), n_experts + 1, 0);
  for (int32_t e : chosen) ++expert_begin_[static_cast<size_t>(e) + 1];
  active_experts_.clear();
  for (size_t e = 0; e < n_experts; ++e) {
    if (expert_begin_[e + 1] > 0) active_experts_.push_back(static_cast<int32_t>(e));
    expert_begin_[e + 1] += expert_begin_[e];
  }
  for (size_t i = 0; i < chosen.size(); ++i) {
    pair_order_[static_cast<size_t>(expert_begin_[static_cast<size_t>(chosen[i])]++)] = static_cast<int32_t>(i);
  }
  for (size_t e = n_experts; e > 0; --e) expert_begin_[e] = expert_begin_[e - 1];
  expert_begin_[0] = 0;
}

void CpuPlan::run_moe_linear(size_t i) {
  const Node& n = node(i);
  const Matrix& matrix = *bound_[i].matrix;
  const std::span<const Column> columns = columns_of(n.in[0], matrix.column_kind(), static_cast<size_t>(matrix.n_in));
  const size_t n_used = width(n.in[2]), n_pairs = tokens_.size() * n_used;
  const size_t n_out = static_cast<size_t>(matrix.n_out), n_panels = matrix.n_panels();
  group_by_expert({ids(n.in[2]), n_pairs}, static_cast<size_t>(matrix.n_stack));
  const bool one_input_per_token = graph_.info(n.in[0]).shape.n_dims() == 1;
  for (size_t s = 0; s < n_pairs; ++s) {
    const size_t pair = static_cast<size_t>(pair_order_[s]);
    sorted_columns_[s] = columns[one_input_per_token ? pair / n_used : pair];
    sorted_outs_[s] = data(n.out[0]) + pair * n_out;
  }
  const std::vector<float>*bias = bound_[i].vectors[3], *scale = bound_[i].vectors[4];
  threads_.parallel_for(active_experts_.size() * n_panels, [&](size_t first, size_t end) {
    while (first < end) {  // one expert's run of panels at a time
      const size_t expert = static_cast<size_t>(active_experts_[first / n_panels]);
      const size_t p = first % n_panels, p_end = std::min(n_panels, p + end - first);
      const size_t s = static_cast<size_t>(expert_begin_[expert]);
      const size_t n_columns = static_cast<size_t>(expert_begin_[expert + 1]) - s;
      multiply(matrix, expert, {sorted_columns_.data() + s, n_columns}, sorted_outs_.data() + s, p, p_end);
      const size_t o_end = std::min(n_out, p_end * kPanelRows);
      for (size_t c = s; c < s + n_columns; ++c) {
        for (size_t o = p * kPanelRows; o < o_end; ++o) {
          if (scale) sorted_outs_[c][o] *= (*scale)[expert];
          if (bias) sorted_outs_[c][o] += (*bias)[expert * n_out + o];
        }
      }
      first += p_end - p;
    }
  });
}

void CpuPlan::run_moe_combine(size_t i) {
  const Node& n = node(i);
  const size_t n_used = width(n.in[1]), dim = width(n.out[0]);
  for_each_row(n_rows(n.out[0]), [&](size_t t) {
    float* out = data(n.out[0]) + t * dim;
    std::fill_n(out, dim, 0.0f);
    for (size_t u = 0; u < n_used; ++u) {
      kernels_.add_scaled(data(n.in[0]) + (t * n_used + u) * dim, data(n.in[1])[t * n_used + u], dim, out);
    }
  });
}

}  // namespace zinc::cpu
