// Attention of some query rows over one kv head, four pages at a time with a running softmax: scores of all rows, then
// their weights, then the weighted values. A page is read once for all rows: straight from the cache for a few rows
// (decode), decoded into floats first for many (prefill). Keys: 16 positions per vector, so scores need no sum across
// lanes; values: 16 dimensions per vector. Each row's operations and their order are the same whichever rows stand
// beside it.
#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cpu/kernel/functions.h"
#include "backend/cpu/kernel/kv_pages.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int kRowsTogether = kTileColumns;                // their sums fill the registers
constexpr int kBlockPages = 4, kBlock = kBlockPages * 32;  // one softmax per block: it costs little beside the products
constexpr int kSecondLevel = 2;  // the cache that is fetched into ahead: the first holds hardly a block
constexpr float kLaneNumbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

using RowScores = float[kBlock];  // of a block's positions; then their weights

struct Seen {  // positions begin..end-1 of a page or block
  int begin, end;
  bool operator==(const Seen&) const = default;
};

Seen seen_by(const AttentionTask& task, int row, int first_position, int n_positions) {
  const int64_t position = task.positions[row], first = first_position;
  const int64_t oldest = task.window > 0 ? std::max<int64_t>(0, position - task.window + 1) : 0;
  return {static_cast<int>(std::clamp<int64_t>(oldest - first, 0, n_positions)),
          static_cast<int>(std::clamp<int64_t>(position + 1 - first, 0, n_positions))};
}

// fn(std::integral_constant<int, R>, row, seen) for runs of R rows that see the same positions of the page, if any.
template <class Fn>
void for_each_run(const AttentionTask& task, int page, const Fn& fn) {
  for (int row = 0; row < task.n_rows;) {
    const Seen seen = seen_by(task, row, page * 32, 32);
    int n = 1;
    while (n < kRowsTogether && row + n < task.n_rows && seen_by(task, row + n, page * 32, 32) == seen) ++n;
    const int used = n == 8 ? 8 : std::min(n, 4);
    if (seen.begin < seen.end) {
      if constexpr (kRowsTogether >= 8) {
        if (used == 8) fn(std::integral_constant<int, 8>(), row, seen);
      }
      if constexpr (kRowsTogether >= 4) {
        if (used == 4) fn(std::integral_constant<int, 4>(), row, seen);
        if (used == 3) fn(std::integral_constant<int, 3>(), row, seen);
      }
      if (used == 2) fn(std::integral_constant<int, 2>(), row, seen);
      if (used == 1) fn(std::integral_constant<int, 1>(), row, seen);
    }
    row += used;
  }
}

// Raw scores of R rows at all positions of the page, seen or not. What is wanted after the block's keys is asked for
// meanwhile, line by line; `ahead` may be nullptr.
template <int R, class Page>
void score_page(const AttentionTask& task, const Page& page, const std::byte* ahead, int row, RowScores* scores) {
  const size_t step = Page::key_bytes(task.k_dim) / static_cast<size_t>(task.k_dim);
  F first[R], second[R];
  for (int r = 0; r < R; ++r) first[r] = second[r] = f_zero();
  for (size_t d = 0; d < static_cast<size_t>(task.k_dim); ++d) {  // 2R independent chains keep the multipliers busy
    const F k0 = page.key(d, 0), k1 = page.key(d, 16);
    if (ahead) __builtin_prefetch(ahead + d * step, 0, kSecondLevel);
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

// Scores of one row become weights, and its sums so far shrink to the new largest score.
void soften(const AttentionTask& task, Seen seen, AttentionRow& row, float* scores, float* acc) {
  const int first = seen.begin / 16 * 16;
  F most = f_set(row.largest);
  for (int i = first; i < seen.end; i += 16) {
    F score = f_mul(f_load(scores + i), f_set(task.scale));
    if (task.softcap > 0) score = f_softcap(score, f_set(task.softcap));
    if (i < seen.begin || i + 16 > seen.end) {
      const F lane = f_load(kLaneNumbers), low = f_set(static_cast<float>(seen.begin - i));
      const F high = f_set(static_cast<float>(seen.end - i));
      score = f_below(lane, low, f_set(kNothing), f_below(lane, high, score, f_set(kNothing)));
    }
    f_store(scores + i, score);
    most = f_max(most, score);
  }
  const float largest = f_largest(most);
  if (largest > row.largest) {
    const F shrink = f_exp(f_sub(f_set(row.largest), f_set(largest)));  // 0 for the first block: nothing so far
    row = {largest, row.sum * f_first(shrink)};
    for (size_t d = 0; d < padded_to_16(task.v_dim); d += 16) f_store(acc + d, f_mul(f_load(acc + d), shrink));
  }
  F sum = f_zero();
  for (int i = first; i < seen.end; i += 16) {
    const F weight = f_exp(f_sub(f_load(scores + i), f_set(largest)));
    f_store(scores + i, weight);
    sum = f_add(sum, weight);
  }
  row.sum += f_sum(sum);
}

// acc[r] += the values seen, weighted: V vectors of dimensions at a time. Returns the first dimension left over.
template <int R, int V, class Page>
size_t add_values(const Page& page, Seen seen, const RowScores* weights, size_t d, size_t v_dim, float* const* acc,
                  const std::byte* ahead) {
  for (; d + V * 16 <= v_dim; d += V * 16) {
    F sums[R][V];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < V; ++i) sums[r][i] = f_load(acc[r] + d + static_cast<size_t>(i) * 16);
    }
    for (int p = seen.begin; p < seen.end; ++p) {
      const size_t at = static_cast<size_t>(p) * v_dim + d;
      F values[V];
      for (int i = 0; i < V; ++i) {
        if (ahead && i * 16 * Page::kValueBytes % 64 == 0) {
          __builtin_prefetch(ahead + (at + static_cast<size_t>(i) * 16) * Page::kValueBytes, 0, kSecondLevel);
        }
        values[i] = page.value(static_cast<size_t>(p), d + static_cast<size_t>(i) * 16);
      }
      for (int r = 0; r < R; ++r) {
        const F weight = f_set(weights[r][p]);
        for (int i = 0; i < V; ++i) sums[r][i] = f_fma(values[i], weight, sums[r][i]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < V; ++i) f_store(acc[r] + d + static_cast<size_t>(i) * 16, sums[r][i]);
    }
  }
  return d;
}

template <int R, class Page>
void add_page(const AttentionTask& task, const Page& page, const std::byte* ahead, Seen seen, int row,
              const RowScores* weights) {
  const size_t v_dim = padded_to_16(task.v_dim);
  float* const* acc = task.acc + row;
  size_t d = 0;
  if constexpr (R * 8 <= kTileColumns * 2) d = add_values<R, 8>(page, seen, weights, d, v_dim, acc, ahead);
  if constexpr (R * 4 <= kTileColumns * 2) d = add_values<R, 4>(page, seen, weights, d, v_dim, acc, ahead);
  if constexpr (R * 2 <= kTileColumns * 2) d = add_values<R, 2>(page, seen, weights, d, v_dim, acc, ahead);
  add_values<R, 1>(page, seen, weights, d, v_dim, acc, ahead);
}

// A page's keys as floats in the task's scratch.
template <class Page>
F32Page decode_keys(const AttentionTask& task, const Page& page) {
  for (size_t d = 0; d < static_cast<size_t>(task.k_dim); ++d) {
    f_store(task.scratch + d * kP, page.key(d, 0));
    f_store(task.scratch + d * kP + 16, page.key(d, 16));
  }
  return {reinterpret_cast<const std::byte*>(task.scratch), task.k_dim, task.v_dim};
}

// Its values, padded with zeros to whole vectors, where F32Page expects them: behind keys.
template <class Page>
F32Page decode_values(const AttentionTask& task, const Page& page) {
  float* values = task.scratch + static_cast<size_t>(task.k_dim) * kP;
  const size_t v_dim = static_cast<size_t>(task.v_dim), padded = padded_to_16(task.v_dim);
  for (size_t i = 0; i < kP * v_dim; i += 16) f_store(values + i, page.value_run(i));
  for (size_t p = kP; p-- > 0 && padded > v_dim;) {  // the last row first: rows move towards the end
    std::memmove(values + p * padded, values + p * v_dim, v_dim * sizeof(float));
    std::fill(values + p * padded + v_dim, values + (p + 1) * padded, 0.0f);
  }
  return {reinterpret_cast<const std::byte*>(task.scratch), task.k_dim, static_cast<int>(padded)};
}

// Pages first..end-1, which are of one block.
template <class Page>
void add_block(const AttentionTask& task, int first, int end) {
  const bool decodes = task.n_rows > kRowsTogether || task.v_dim % 16 != 0;
  const auto at = [&](int number) { return task.pages[number - task.first_page]; };
  alignas(64) RowScores scores[kMaxAttentionRows];
  for (int number = first; number < end; ++number) {
    if (!at(number)) continue;  // behind the window of every row
    const Page page(at(number), task.k_dim, task.v_dim);
    const auto score = [&](const auto& keys, const std::byte* ahead) {
      for_each_run(task, number, [&](auto R, int row, Seen) {
        score_page<R>(task, keys, ahead, row, reinterpret_cast<RowScores*>(scores[row] + number % kBlockPages * 32));
      });
    };
    decodes ? score(decode_keys(task, page), nullptr) : score(page, at(number) + Page::key_bytes(task.k_dim));
  }
  for (int row = 0; row < task.n_rows; ++row) {
    const Seen seen = seen_by(task, row, first / kBlockPages * kBlock, kBlock);
    if (seen.begin < seen.end) soften(task, seen, task.rows[row], scores[row], task.acc[row]);
  }
  for (int number = first; number < end; ++number) {
    if (!at(number)) continue;
    const Page page(at(number), task.k_dim, task.v_dim);
    const auto add = [&](const auto& values, const std::byte* ahead) {
      for_each_run(task, number, [&](auto R, int row, Seen seen) {
        const auto* weights = reinterpret_cast<const RowScores*>(scores[row] + number % kBlockPages * 32);
        add_page<R>(task, values, ahead, seen, row, weights);
      });
    };
    const bool more = number + kBlockPages < task.listed_end;
    decodes ? add(decode_values(task, page), nullptr) : add(page, more ? at(number + kBlockPages) : nullptr);
  }
}

template <class Page>
void attend(const AttentionTask& task) {
  for (int r = 0; r < task.n_rows; ++r) {
    task.rows[r] = kSawNothing;
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

constexpr KvLayout kLayouts[] = {layout_of<F32Page>("f32"), layout_of<F16Page>("f16"), layout_of<Q8Page>("q8_0")};

}  // namespace

void merge_attention(const AttentionRow& part, const float* part_acc, size_t v_dim, AttentionRow& whole, float* acc) {
  if (part.largest == kNothing) return;
  const F largest = f_set(std::max(part.largest, whole.largest));
  const F shrink = f_exp(f_sub(f_set(whole.largest), largest)), grow = f_exp(f_sub(f_set(part.largest), largest));
  whole = {f_first(largest), whole.sum * f_first(shrink) + part.sum * f_first(grow)};
  for (size_t d = 0; d < v_dim; d += 16) {
    f_store(acc + d, f_fma(f_load(part_acc + d), grow, f_mul(f_load(acc + d), shrink)));
  }
}

void finish_attention(const AttentionRow& row, const float* acc, const float* sink, size_t v_dim, float* out) {
  const float largest = sink ? std::max(*sink, row.largest) : row.largest;
  const float shrink = f_first(f_exp(f_set(row.largest - largest)));
  const float sum = row.sum * shrink + (sink ? f_first(f_exp(f_set(*sink - largest))) : 0.0f);
  scale(acc, shrink / sum, v_dim, out);
}

const KvLayout* kv_layout(std::string_view format) {
  for (const KvLayout& layout : kLayouts) {
    if (layout.format == format) return &layout;
  }
  return nullptr;
}

}  // namespace zinc::cpu::ZINC_ISA
