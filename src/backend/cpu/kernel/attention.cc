// Attention of some query rows over one KV head, four pages at a time with an online softmax: scores of all rows, then
// probabilities, then the weighted sum of values. A page is read once for all rows: directly from the cache for a few
// rows (decode), or dequantized to floats first for many (prefill). Keys: 16 positions per vector, so scores need no
// horizontal sum; values: 16 dimensions per vector. The operations of a row and their order do not depend on the other
// rows.
#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cpu/kernel/functions.h"
#include "backend/cpu/kernel/kv_pages.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();
constexpr int kRowTile = kTileTokens;  // as in a matmul tile: their accumulators fill the registers
constexpr int kBlockPages = 4,
              kBlockPositions = kBlockPages * 32;  // one softmax per block: cheap compared with the dot products
constexpr int kPrefetchL2 = 2;  // locality hint of __builtin_prefetch: into L2, because L1 holds hardly one block
constexpr float kLaneIds[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

using RowScores = float[kBlockPositions];  // scores of a block's positions, then softmax probabilities

struct PositionRange {  // positions begin..end-1 of a page or block
  int begin, end;
  bool operator==(const PositionRange&) const = default;
};

PositionRange visible_positions(const AttentionTask& task, int row, int first_position, int n_positions) {
  const int64_t position = task.positions[row], first = first_position;
  const int64_t oldest = task.window > 0 ? std::max<int64_t>(0, position - task.window + 1) : 0;
  return {static_cast<int>(std::clamp<int64_t>(oldest - first, 0, n_positions)),
          static_cast<int>(std::clamp<int64_t>(position + 1 - first, 0, n_positions))};
}

// Calls fn(std::integral_constant<int, R>, row, visible) for R consecutive rows that attend to the same positions of
// the page; skips rows that attend to none.
template <class Fn>
void for_each_row_group(const AttentionTask& task, int page, const Fn& fn) {
  for (int row = 0; row < task.n_rows;) {
    const PositionRange visible = visible_positions(task, row, page * 32, 32);
    int n = 1;
    while (n < kRowTile && row + n < task.n_rows && visible_positions(task, row + n, page * 32, 32) == visible) ++n;
    const int n_group_rows = n == 8 ? 8 : std::min(n, 4);
    if (visible.begin < visible.end) {
      if constexpr (kRowTile >= 8) {
        if (n_group_rows == 8) fn(std::integral_constant<int, 8>(), row, visible);
      }
      if constexpr (kRowTile >= 4) {
        if (n_group_rows == 4) fn(std::integral_constant<int, 4>(), row, visible);
        if (n_group_rows == 3) fn(std::integral_constant<int, 3>(), row, visible);
      }
      if (n_group_rows == 2) fn(std::integral_constant<int, 2>(), row, visible);
      if (n_group_rows == 1) fn(std::integral_constant<int, 1>(), row, visible);
    }
    row += n_group_rows;
  }
}

// Raw scores of R rows at all positions of the page, masked or not. Meanwhile prefetches the data at `prefetch`,
// which is needed after the block's keys, line by line; it may be nullptr.
template <int R, class Page>
void score_page(const AttentionTask& task, const Page& page, const std::byte* prefetch, int row, RowScores* scores) {
  const size_t step = Page::key_bytes(task.k_dim) / static_cast<size_t>(task.k_dim);
  F first[R], second[R];
  for (int r = 0; r < R; ++r) first[r] = second[r] = f_zero();
  for (size_t d = 0; d < static_cast<size_t>(task.k_dim); ++d) {  // 2R independent FMA chains hide the latency
    const F k0 = page.key(d, 0), k1 = page.key(d, 16);
    if (prefetch) __builtin_prefetch(prefetch + d * step, 0, kPrefetchL2);
    for (int r = 0; r < R; ++r) {
      const F x = f_set(task.q[row + r][d]);
      first[r] = f_fma(k0, x, first[r]);
      second[r] = f_fma(k1, x, second[r]);
    }
  }
  for (int r = 0; r < R; ++r) {
    f_store(scores[r], first[r]);
    f_store(scores[r] + 16, second[r]);
  }
}

// Converts the scores of one row to probabilities, and rescales its previous sums to the new maximum.
void online_softmax(const AttentionTask& task, PositionRange visible, SoftmaxState& row, float* scores, float* acc) {
  const int first = visible.begin / 16 * 16;
  F max_scores = f_set(row.max);
  for (int i = first; i < visible.end; i += 16) {
    F score = f_mul(f_load(scores + i), f_set(task.scale));
    if (task.softcap > 0) score = f_softcap(score, f_set(task.softcap));
    if (i < visible.begin || i + 16 > visible.end) {
      const F lane = f_load(kLaneIds), low = f_set(static_cast<float>(visible.begin - i));
      const F high = f_set(static_cast<float>(visible.end - i));
      score = f_below(lane, low, f_set(kNegInf), f_below(lane, high, score, f_set(kNegInf)));
    }
    f_store(scores + i, score);
    max_scores = f_max(max_scores, score);
  }
  const float new_max = f_reduce_max(max_scores);
  if (new_max > row.max) {
    const F old_scale = f_exp(f_sub(f_set(row.max), f_set(new_max)));  // 0 for the first block
    row = {new_max, row.sum * f_first(old_scale)};
    for (size_t d = 0; d < padded_to_16(task.v_dim); d += 16) f_store(acc + d, f_mul(f_load(acc + d), old_scale));
  }
  F sum = f_zero();
  for (int i = first; i < visible.end; i += 16) {
    const F prob = f_exp(f_sub(f_load(scores + i), f_set(new_max)));
    f_store(scores + i, prob);
    sum = f_add(sum, prob);
  }
  row.sum += f_sum(sum);
}

// acc[r] += weighted values of the visible positions, V vectors of dimensions at a time. Returns the first dimension
// that remains.
template <int R, int V, class Page>
size_t add_values(const Page& page, PositionRange visible, const RowScores* probs, size_t d, size_t v_dim,
                  float* const* acc, const std::byte* prefetch) {
  for (; d + V * 16 <= v_dim; d += V * 16) {
    F sums[R][V];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < V; ++i) sums[r][i] = f_load(acc[r] + d + static_cast<size_t>(i) * 16);
    }
    for (int p = visible.begin; p < visible.end; ++p) {
      const size_t offset = static_cast<size_t>(p) * v_dim + d;
      F values[V];
      for (int i = 0; i < V; ++i) {
        if (prefetch && i * 16 * Page::kValueBytes % 64 == 0) {
          __builtin_prefetch(prefetch + (offset + static_cast<size_t>(i) * 16) * Page::kValueBytes, 0, kPrefetchL2);
        }
        values[i] = page.value(static_cast<size_t>(p), d + static_cast<size_t>(i) * 16);
      }
      for (int r = 0; r < R; ++r) {
        const F prob = f_set(probs[r][p]);
        for (int i = 0; i < V; ++i) sums[r][i] = f_fma(values[i], prob, sums[r][i]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < V; ++i) f_store(acc[r] + d + static_cast<size_t>(i) * 16, sums[r][i]);
    }
  }
  return d;
}

template <int R, class Page>
void add_page(const AttentionTask& task, const Page& page, const std::byte* prefetch, PositionRange visible, int row,
              const RowScores* probs) {
  const size_t v_dim = padded_to_16(task.v_dim);
  float* const* acc = task.acc + row;
  size_t d = 0;
  if constexpr (R * 8 <= kTileTokens * 2) d = add_values<R, 8>(page, visible, probs, d, v_dim, acc, prefetch);
  if constexpr (R * 4 <= kTileTokens * 2) d = add_values<R, 4>(page, visible, probs, d, v_dim, acc, prefetch);
  if constexpr (R * 2 <= kTileTokens * 2) d = add_values<R, 2>(page, visible, probs, d, v_dim, acc, prefetch);
  add_values<R, 1>(page, visible, probs, d, v_dim, acc, prefetch);
}

// Dequantizes a page's keys to the task's scratch.
template <class Page>
F32Page dequantize_keys(const AttentionTask& task, const Page& page) {
  for (size_t d = 0; d < static_cast<size_t>(task.k_dim); ++d) {
    f_store(task.scratch + d * kPageTokens, page.key(d, 0));
    f_store(task.scratch + d * kPageTokens + 16, page.key(d, 16));
  }
  return {reinterpret_cast<const std::byte*>(task.scratch), task.k_dim, task.v_dim};
}

// Dequantizes its values, padded with zeros to whole vectors, to where F32Page expects them: after the keys.
template <class Page>
F32Page dequantize_values(const AttentionTask& task, const Page& page) {
  float* values = task.scratch + static_cast<size_t>(task.k_dim) * kPageTokens;
  const size_t v_dim = static_cast<size_t>(task.v_dim), padded_v_dim = padded_to_16(task.v_dim);
  for (size_t i = 0; i < kPageTokens * v_dim; i += 16) f_store(values + i, page.load_values_16(i));
  for (size_t p = kPageTokens; p-- > 0 && padded_v_dim > v_dim;) {  // last row first: rows move towards the end
    std::memmove(values + p * padded_v_dim, values + p * v_dim, v_dim * sizeof(float));
    std::fill(values + p * padded_v_dim + v_dim, values + (p + 1) * padded_v_dim, 0.0f);
  }
  return {reinterpret_cast<const std::byte*>(task.scratch), task.k_dim, static_cast<int>(padded_v_dim)};
}

// Pages first..end-1 of one block.
template <class Page>
void add_block(const AttentionTask& task, int first, int end) {
  const bool dequantizes = task.n_rows > kRowTile || task.v_dim % 16 != 0;
  const auto page_data = [&](int page_idx) { return task.pages[page_idx - task.first_page]; };
  alignas(64) RowScores scores[kMaxAttentionRows];
  for (int page_idx = first; page_idx < end; ++page_idx) {
    if (!page_data(page_idx)) continue;  // outside of every row's window
    const Page page(page_data(page_idx), task.k_dim, task.v_dim);
    const auto score = [&](const auto& keys, const std::byte* prefetch) {
      for_each_row_group(task, page_idx, [&](auto R, int row, PositionRange) {
        score_page<R>(task, keys, prefetch, row,
                      reinterpret_cast<RowScores*>(scores[row] + page_idx % kBlockPages * 32));
      });
    };
    dequantizes ? score(dequantize_keys(task, page), nullptr)
                : score(page, page_data(page_idx) + Page::key_bytes(task.k_dim));
  }
  for (int row = 0; row < task.n_rows; ++row) {
    const PositionRange visible = visible_positions(task, row, first / kBlockPages * kBlockPositions, kBlockPositions);
    if (visible.begin < visible.end) online_softmax(task, visible, task.rows[row], scores[row], task.acc[row]);
  }
  for (int page_idx = first; page_idx < end; ++page_idx) {
    if (!page_data(page_idx)) continue;
    const Page page(page_data(page_idx), task.k_dim, task.v_dim);
    const auto add = [&](const auto& values, const std::byte* prefetch) {
      for_each_row_group(task, page_idx, [&](auto R, int row, PositionRange visible) {
        const auto* probs = reinterpret_cast<const RowScores*>(scores[row] + page_idx % kBlockPages * 32);
        add_page<R>(task, values, prefetch, visible, row, probs);
      });
    };
    const bool has_next = page_idx + kBlockPages < task.prefetch_end;
    dequantizes ? add(dequantize_values(task, page), nullptr)
                : add(page, has_next ? page_data(page_idx + kBlockPages) : nullptr);
  }
}

// The task with its queries transformed like the keys, behind the page in its scratch.
void transform_queries(AttentionTask& task, const float** rows) {
  const size_t k_dim = static_cast<size_t>(task.k_dim);
  float* to = task.scratch + attention_page_floats(task.k_dim, task.v_dim);
  for (int r = 0; r < task.n_rows; ++r, to += k_dim) {
    std::copy_n(task.q[r], k_dim, to);
    for (size_t i = 0; i < k_dim; i += 32) hadamard_32(to + i, kQueryFactor);
    rows[r] = to;
  }
  task.q = rows;
}

template <class Page>
void attend(const AttentionTask& given) {
  AttentionTask task = given;
  const float* transformed[kMaxAttentionRows];
  if constexpr (Page::kTransformsKeys) transform_queries(task, transformed);
  for (int r = 0; r < task.n_rows; ++r) {
    task.rows[r] = kEmptySoftmax;
    std::fill_n(task.acc[r], padded_to_16(task.v_dim), 0.0f);
  }
  for (int first = task.first_page; first < task.end_page;) {
    const int end = std::min(task.end_page, (first / kBlockPages + 1) * kBlockPages);
    add_block<Page>(task, first, end);
    first = end;
  }
}

template <class Page>
constexpr KvLayout layout_of(std::string_view format) {
  return {.format = format,
          .key_bytes = Page::key_bytes,
          .value_bytes = Page::value_bytes,
          .write_key = Page::write_key,
          .write_value = Page::write_value,
          .attend = attend<Page>};
}

constexpr KvLayout kLayouts[] = {layout_of<F32Page>("f32"), layout_of<F16Page>("f16"), layout_of<Q8Page>("q8_0"),
                                 layout_of<Q4Page>("q4_0")};

}  // namespace

void merge_value(const SoftmaxState& partial, const float* partial_acc, size_t v_dim, SoftmaxState& running,
                 float* acc) {
  if (partial.max == kNegInf) return;
  const F new_max = f_set(std::max(partial.max, running.max));
  const F old_scale = f_exp(f_sub(f_set(running.max), new_max)), new_scale = f_exp(f_sub(f_set(partial.max), new_max));
  running = {f_first(new_max), running.sum * f_first(old_scale) + partial.sum * f_first(new_scale)};
  for (size_t d = 0; d < v_dim; d += 16) {
    f_store(acc + d, f_fma(f_load(partial_acc + d), new_scale, f_mul(f_load(acc + d), old_scale)));
  }
}

void finish_attention(const SoftmaxState& row, const float* acc, const float* sink, size_t v_dim, float* out) {
  const float new_max = sink ? std::max(*sink, row.max) : row.max;
  const float old_scale = f_first(f_exp(f_set(row.max - new_max)));
  const float sum = row.sum * old_scale + (sink ? f_first(f_exp(f_set(*sink - new_max))) : 0.0f);
  unary(Op::scale, acc, old_scale / sum, v_dim, out);
}

const KvLayout* kv_layout(std::string_view format) {
  for (const KvLayout& layout : kLayouts) {
    if (layout.format == format) return &layout;
  }
  return nullptr;
}

}  // namespace zinc::cpu::ZINC_ISA
