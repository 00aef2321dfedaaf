// Attention of some query rows over one kv head, page by page with a running softmax. A page's keys and values are
// read once for all rows: straight from the cache for a few rows (decode), decoded into floats first for many
// (prefill). Keys: 16 positions per vector, so scores need no sum across lanes; values: 16 dimensions per vector. Each
// row's operations and their order are the same whichever rows stand beside it.
#include <algorithm>
#include <cstring>
#include <limits>

#include "backend/cpu/kernel/functions.h"
#include "backend/cpu/kernel/kv_pages.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr int kRowsTogether = 4;
constexpr float kLaneNumbers[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

struct Seen {  // positions begin..end-1 of a page
  int begin, end;
  bool operator==(const Seen&) const = default;
};

Seen seen_by(const AttentionTask& task, int row, int page) {
  const int64_t position = task.positions[row], first = int64_t{page} * 32;
  const int64_t oldest = task.window > 0 ? std::max<int64_t>(0, position - task.window + 1) : 0;
  return {static_cast<int>(std::clamp<int64_t>(oldest - first, 0, 32)),
          static_cast<int>(std::clamp<int64_t>(position + 1 - first, 0, 32))};
}

F capped(F score, const AttentionTask& task) {
  score = f_mul(score, f_set(task.scale));
  if (task.softcap <= 0) return score;
  return f_softcap(score, f_set(task.softcap));
}

// Scores of one row become weights; returns the factor by which its sums so far shrink.
F soften(const AttentionTask& task, Seen seen, F first, F second, AttentionRow& row, float* weights) {
  const F low = f_set(static_cast<float>(seen.begin)), high = f_set(static_cast<float>(seen.end));
  const auto masked = [&](F score, const float* lanes) {
    const F lane = f_load(lanes);
    return f_below(lane, low, f_set(kNothing), f_below(lane, high, capped(score, task), f_set(kNothing)));
  };
  first = masked(first, kLaneNumbers);
  second = masked(second, kLaneNumbers + 16);
  const float largest = std::max(row.largest, f_largest(f_max(first, second)));
  const F base = f_set(largest), p0 = f_exp(f_sub(first, base)), p1 = f_exp(f_sub(second, base));
  f_store(weights, p0);
  f_store(weights + 16, p1);
  const F shrink = f_exp(f_sub(f_set(row.largest), base));  // 0 for the first page: nothing so far
  row.sum = row.sum * f_first(shrink) + f_sum(f_add(p0, p1));
  row.largest = largest;
  return shrink;
}

// acc[r] = acc[r] * shrink[r] + the values seen, weighted: V vectors of dimensions at a time, then single ones.
template <class Page, int R, int V>
size_t add_values(const Page& page, Seen seen, const float (*weights)[32], const F* shrink, size_t d, size_t v_dim,
                  float* const* acc, const std::byte* next) {
  for (; d + V * 16 <= v_dim; d += V * 16) {
    F sums[R][V];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < V; ++i) sums[r][i] = f_mul(f_load(acc[r] + d + static_cast<size_t>(i) * 16), shrink[r]);
    }
    for (int p = seen.begin; p < seen.end; ++p) {
      F w[R];
      for (int r = 0; r < R; ++r) w[r] = f_set(weights[r][p]);
      for (int i = 0; i < V; ++i) {
        const size_t at = (static_cast<size_t>(p) * v_dim + d + static_cast<size_t>(i) * 16) * Page::kValueBytes;
        if (next && i * 16 * Page::kValueBytes % 64 == 0) __builtin_prefetch(next + at);
        const F value = page.value(static_cast<size_t>(p), d + static_cast<size_t>(i) * 16);
        for (int r = 0; r < R; ++r) sums[r][i] = f_fma(value, w[r], sums[r][i]);
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < V; ++i) f_store(acc[r] + d + static_cast<size_t>(i) * 16, sums[r][i]);
    }
  }
  return d;
}

// R rows that see the same positions of the page. Pages lie far apart, so `next`, if any, is asked for while this one
// is used.
template <class Page, int R>
void add_page(const AttentionTask& task, const Page& page, const std::byte* next, Seen seen, int row) {
  const size_t key_step = Page::key_bytes(task.k_dim) / static_cast<size_t>(task.k_dim);
  F first[R], second[R], shrink[R];
  for (int r = 0; r < R; ++r) first[r] = second[r] = f_zero();
  for (size_t d = 0; d < static_cast<size_t>(task.k_dim); ++d) {  // 2R independent chains keep the multipliers busy
    const F k0 = page.key(d, 0), k1 = page.key(d, 16);
    if (next) __builtin_prefetch(next + d * key_step);
    for (int r = 0; r < R; ++r) {
      const F x = f_set(task.q[row + r][d]);
      first[r] = f_fma(k0, x, first[r]);
      second[r] = f_fma(k1, x, second[r]);
    }
  }
  float weights[R][32];
  for (int r = 0; r < R; ++r) shrink[r] = soften(task, seen, first[r], second[r], task.rows[row + r], weights[r]);
  const size_t v_dim = padded_to_16(task.v_dim);
  float* const* acc = task.acc + row;
  if (next) next += Page::key_bytes(task.k_dim);
  const size_t d = add_values<Page, R, (R <= 2 ? 8 : 4)>(page, seen, weights, shrink, 0, v_dim, acc, next);
  add_values<Page, R, 1>(page, seen, weights, shrink, d, v_dim, acc, next);
}

// Rows in fours where all see the same, else one by one.
template <class Page>
void add_page_to_rows(const AttentionTask& task, const Page& page, const std::byte* next, int number) {
  for (int row = 0; row < task.n_rows;) {
    const Seen seen = seen_by(task, row, number);
    int n = 1;
    while (n < kRowsTogether && row + n < task.n_rows && seen_by(task, row + n, number) == seen) ++n;
    if (seen.begin < seen.end) {
      if (n == 4) add_page<Page, 4>(task, page, next, seen, row);
      if (n == 3) add_page<Page, 3>(task, page, next, seen, row);
      if (n == 2) add_page<Page, 2>(task, page, next, seen, row);
      if (n == 1) add_page<Page, 1>(task, page, next, seen, row);
    }
    row += n;
  }
}

// A page's keys and values as floats in the task's scratch, values padded with zeros to whole vectors.
template <class Page>
F32Page decode(const AttentionTask& task, const Page& page) {
  float* keys = task.scratch;
  for (size_t d = 0; d < static_cast<size_t>(task.k_dim); ++d) {
    f_store(keys + d * kP, page.key(d, 0));
    f_store(keys + d * kP + 16, page.key(d, 16));
  }
  float* values = keys + static_cast<size_t>(task.k_dim) * kP;
  const size_t v_dim = static_cast<size_t>(task.v_dim), padded = padded_to_16(task.v_dim);
  for (size_t i = 0; i < kP * v_dim; i += 16) f_store(values + i, page.value_run(i));
  for (size_t p = kP; p-- > 0 && padded > v_dim;) {  // the last row first: rows move towards the end
    std::memmove(values + p * padded, values + p * v_dim, v_dim * sizeof(float));
    std::fill(values + p * padded + v_dim, values + (p + 1) * padded, 0.0f);
  }
  return {reinterpret_cast<const std::byte*>(keys), task.k_dim, static_cast<int>(padded)};
}

template <class Page>
void attend(const AttentionTask& task) {
  for (int r = 0; r < task.n_rows; ++r) {
    task.rows[r] = kSawNothing;
    std::fill_n(task.acc[r], padded_to_16(task.v_dim), 0.0f);
  }
  const bool decodes = task.n_rows > kRowsTogether || task.v_dim % 16 != 0;
  for (int number = task.first_page; number < task.end_page; ++number) {
    const std::byte* const* at = task.pages + (number - task.first_page);
    if (!*at) continue;  // behind the window of every row
    const Page page(*at, task.k_dim, task.v_dim);
    if (decodes) {
      add_page_to_rows(task, decode(task, page), nullptr, number);
    } else {
      add_page_to_rows(task, page, number + 1 < task.end_page ? at[1] : nullptr, number);
    }
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
