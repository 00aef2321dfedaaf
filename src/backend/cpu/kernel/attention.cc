// Attention of some query rows over one kv head, page by page with a running softmax. A page's keys and values are
// read once for all rows. Keys: 16 positions per vector, so scores need no sum across lanes; values: 16 dimensions per
// vector. Bytes moved: one page's keys and values; per row and page 64 * (k_dim + v_dim) / 16 multiply-adds.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/kernel/functions.h"
#include "backend/cpu/kernel/vector_math.h"
#include "graph/cache_spec.h"

namespace zinc::cpu::ZINC_ISA {
namespace {

static_assert(kPageTokens == 32, "two vectors of positions per page");
constexpr float kLaneNumbers[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                    16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

struct Scores {
  F first, second;  // positions 0..15 and 16..31 of the page
};

// q . keys for R rows together: 2R independent chains keep the multipliers busy.
template <int R>
void score_rows(const float* keys, const float* const* q, int k_dim, Scores* out) {
  F a[R], b[R];
  for (int r = 0; r < R; ++r) a[r] = b[r] = f_zero();
  for (int d = 0; d < k_dim; ++d) {
    const F first = f_load(keys + d * 32), second = f_load(keys + d * 32 + 16);
    for (int r = 0; r < R; ++r) {
      const F x = f_set(q[r][d]);
      a[r] = f_fma(first, x, a[r]);
      b[r] = f_fma(second, x, b[r]);
    }
  }
  for (int r = 0; r < R; ++r) out[r] = {a[r], b[r]};
}

F capped(F score, const AttentionTask& task) {
  score = f_mul(score, f_set(task.scale));
  if (task.softcap <= 0) return score;
  return f_mul(f_tanh(f_div(score, f_set(task.softcap))), f_set(task.softcap));
}

struct Row {
  float largest, sum;  // of the softmax so far
};

// acc += the values of positions begin..end-1, weighted; 8 vectors of dimensions at a time.
void add_values(const float* values, const float* weights, int begin, int end, int v_dim, F shrink, float* acc) {
  int d = 0;
  for (; d + 128 <= v_dim; d += 128) {
    F sums[8];
    for (int i = 0; i < 8; ++i) sums[i] = f_mul(f_load(acc + d + i * 16), shrink);
    for (int p = begin; p < end; ++p) {
      const F w = f_set(weights[p]);
      for (int i = 0; i < 8; ++i) sums[i] = f_fma(f_load(values + p * v_dim + d + i * 16), w, sums[i]);
    }
    for (int i = 0; i < 8; ++i) f_store(acc + d + i * 16, sums[i]);
  }
  for (; d < v_dim; d += 16) {
    const size_t n = static_cast<size_t>(std::min(16, v_dim - d));
    F sum = f_mul(f_load_some(acc + d, n), shrink);
    for (int p = begin; p < end; ++p) sum = f_fma(f_load_some(values + p * v_dim + d, n), f_set(weights[p]), sum);
    f_store_some(acc + d, sum, n);
  }
}

// One row, one page: positions begin..end-1 of it are seen.
void add_page(const AttentionTask& task, const Scores& scores, const float* values, int begin, int end, Row& row,
              float* acc) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  const F low = f_set(static_cast<float>(begin)), high = f_set(static_cast<float>(end));
  const auto mask = [&](F score, const float* lanes) {
    const F lane = f_load(lanes);
    return f_below(lane, low, f_set(kNothing), f_below(lane, high, capped(score, task), f_set(kNothing)));
  };
  const F first = mask(scores.first, kLaneNumbers), second = mask(scores.second, kLaneNumbers + 16);
  const float largest = std::max(row.largest, f_largest(f_max(first, second)));
  float weights[32];
  const F base = f_set(largest);
  const F p0 = f_exp(f_sub(first, base)), p1 = f_exp(f_sub(second, base));
  f_store(weights, p0);
  f_store(weights + 16, p1);
  const F shrink = f_exp(f_set(row.largest - largest));  // 0 for the first page: nothing so far
  float shrinks[16];
  f_store(shrinks, shrink);
  row.sum = row.sum * shrinks[0] + f_sum(f_add(p0, p1));
  row.largest = largest;
  add_values(values, weights, begin, end, task.v_dim, shrink, acc);
}

}  // namespace

void attention(const KvLayout& layout, const AttentionTask& task) {
  float* keys = task.scratch;
  float* values = keys + static_cast<size_t>(task.k_dim) * 32;
  float* accs = values + static_cast<size_t>(task.v_dim) * 32;
  const size_t v_dim = static_cast<size_t>(task.v_dim);
  Row rows[kMaxAttentionRows];
  int32_t first = task.positions[0], last = first;
  const auto oldest = [&](int32_t position) {
    return task.window > 0 ? static_cast<int32_t>(std::max<int64_t>(0, position - task.window + 1)) : 0;
  };
  for (int r = 0; r < task.n_rows; ++r) {
    rows[r] = task.sinks ? Row{task.sinks[r], 1} : Row{-std::numeric_limits<float>::infinity(), 0};
    first = std::min(first, oldest(task.positions[r]));
    last = std::max(last, task.positions[r]);
  }
  std::fill_n(accs, v_dim * static_cast<size_t>(task.n_rows), 0.0f);
  for (int32_t page = first / 32; page <= last / 32; ++page) {
    layout.read_keys(task.pages[page], task.k_dim, keys);
    layout.read_values(task.pages[page] + layout.value_offset(task.k_dim), task.v_dim, values);
    for (int r = 0; r < task.n_rows; r += 4) {
      Scores scores[4];
      const int n = std::min(4, task.n_rows - r);
      if (n == 4) {
        score_rows<4>(keys, task.q + r, task.k_dim, scores);
      } else {
        for (int i = 0; i < n; ++i) score_rows<1>(keys, task.q + r + i, task.k_dim, scores + i);
      }
      for (int i = 0; i < n; ++i) {
        const int begin = std::max(0, oldest(task.positions[r + i]) - page * 32);
        const int end = std::min(32, task.positions[r + i] + 1 - page * 32);
        if (begin >= end) continue;
        add_page(task, scores[i], values, begin, end, rows[r + i], accs + static_cast<size_t>(r + i) * v_dim);
      }
    }
  }
  for (int r = 0; r < task.n_rows; ++r)
    scale(accs + static_cast<size_t>(r) * v_dim, 1.0f / rows[r].sum, v_dim, task.out[r]);
}

}  // namespace zinc::cpu::ZINC_ISA
