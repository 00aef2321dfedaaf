// Paged attention. The positions of a row are cut into KV chunks at fixed boundaries, and the partial results are
// merged in order. Small steps with long contexts are parallel over chunks (split-KV), prefill over tokens and heads;
// both compute the same bits.
#include <algorithm>
#include <limits>

#include "backend/cpu/plan_rows.h"
#include "base/ceil_div.h"

namespace zinc::cpu {
namespace {

constexpr int kChunkPages = 16;           // 512 positions: enough chunks for a few threads at some thousand positions
constexpr int kPrefetchPages = 4;         // prefetched of the next chunk, which usually runs on the same thread
constexpr int64_t kMinAttentionRows = 4;  // of a task: fewer do not share the keys and values that they load
constexpr size_t kMaxSplitKvTokens = 4;   // steps of up to this many tokens use split-KV

}  // namespace

PageId CpuPlan::page_at(int group, size_t seq, int32_t position) const {
  const PageTable& table = in_.page_tables[static_cast<size_t>(group)];
  ZINC_DCHECK(position / kPageTokens < table.stride);
  return table.entries[seq * static_cast<size_t>(table.stride) + static_cast<size_t>(position / kPageTokens)];
}

void CpuPlan::write_kv(const Node& n, int layer) {
  const AttentionCache& kv = cache_.layer(layer).attention;
  const KvLayout& layout = cache_.layout();
  const size_t k_dim = static_cast<size_t>(kv.k_dim), v_dim = static_cast<size_t>(kv.v_dim);
  const size_t n_heads = static_cast<size_t>(kv.kv_heads);
  for_each_row(tokens_.size(), [&](size_t t) {
    const int32_t position = in_.positions[t];
    const PageId page = page_at(cache_.group_of(layer), static_cast<size_t>(seq_of_token_[t]), position);
    for (size_t h = 0; h < n_heads; ++h) {
      std::byte* keys = cache_.keys(layer, page, static_cast<int>(h));
      const int offset = position % kPageTokens;
      layout.write_key(data(n.in[1]) + (t * n_heads + h) * k_dim, kv.k_dim, offset, keys);
      layout.write_value(data(n.in[2]) + (t * n_heads + h) * v_dim, kv.v_dim, offset,
                         keys + layout.key_bytes(kv.k_dim));
    }
  });
}

// Allocates the scratch of each thread, and the partial results of all rows and chunks for split-KV steps.
Status CpuPlan::reserve_attention() {
  size_t max_rows = 0, max_dims = 0, max_page_floats = 0;
  for (const Node& n : graph_.nodes()) {
    if (n.op != Op::attention) continue;
    const AttentionParams& params = n.as<AttentionParams>();
    const int64_t in_cache = cache_.n_pages(cache_.group_of(params.cache_layer));
    const int64_t pages = params.window > 0 ? std::min(params.window / kPageTokens + 2, in_cache) : in_cache;
    const size_t n_chunks = static_cast<size_t>(pages / kChunkPages + 2);
    const size_t n_rows = kMaxSplitKvTokens * static_cast<size_t>(graph_.info(n.in[0]).shape[0]) * n_chunks;
    max_rows = std::max(max_rows, n_rows);
    const AttentionCache& kv = cache_.layer(params.cache_layer).attention;
    max_dims = std::max(max_dims, padded_to_16(kv.v_dim));
    max_page_floats = std::max(max_page_floats, attention_scratch_floats(kv.k_dim, kv.v_dim));
  }
  const size_t sum_bytes = max_dims * kMaxAttentionRows * sizeof(float);
  for (ThreadScratch& scratch : scratch_) {
    if (Status s = allocate(scratch.page, max_page_floats * sizeof(float), "attention"); !s.ok()) return s;
    if (Status s = allocate(scratch.total, sum_bytes, "attention"); !s.ok()) return s;
    if (Status s = allocate(scratch.partial, sum_bytes, "attention"); !s.ok()) return s;
  }
  if (Status s = allocate(chunk_sums_, max_rows * max_dims * sizeof(float), "attention"); !s.ok()) return s;
  chunk_states_.resize(max_rows);
  return ok_status();
}

CpuPlan::AttentionHeads CpuPlan::heads_of(const Node& n) const {
  const AttentionParams& params = n.as<AttentionParams>();
  AttentionHeads heads{.params = params, .kv = cache_.layer(params.cache_layer).attention};
  heads.n_heads = static_cast<size_t>(graph_.info(n.in[0]).shape[0]);
  heads.heads_per_kv_head = heads.n_heads / static_cast<size_t>(heads.kv.kv_heads);
  heads.heads_per_task = std::min<size_t>(heads.heads_per_kv_head, kMaxAttentionRows);
  heads.tasks_per_kv_head = (heads.heads_per_kv_head + heads.heads_per_task - 1) / heads.heads_per_task;
  return heads;
}

// As many tokens as a task takes, but fewer in a step with few of them: every thread gets several tasks. Eight rows of
// one sequence with three KV heads on two threads: 1.4 times as fast as three tasks.
int CpuPlan::attention_tile_tokens(const AttentionHeads& heads) const {
  constexpr int64_t kTasksPerThread = 4;
  const int64_t heads_per_task = static_cast<int64_t>(heads.heads_per_task);
  const int64_t tasks_per_tile = heads.kv.kv_heads * static_cast<int64_t>(heads.tasks_per_kv_head);
  const int64_t n_tiles = ceil_div(kTasksPerThread * threads_.n_threads(), tasks_per_tile);
  const int64_t most = std::max<int64_t>(1, kMaxAttentionRows / heads_per_task);
  const int64_t least = std::min(most, ceil_div(kMinAttentionRows, heads_per_task));
  return static_cast<int>(std::clamp(std::ssize(tokens_) / n_tiles, least, most));
}

// Tasks are (tile of tokens, KV head), largest first: prefill comes after decode in a step, and the last tokens attend
// to most positions. Tasks are assigned round-robin, so that each thread starts with large ones and ends with small
// ones, which other threads can steal.
void CpuPlan::run_attention(size_t i) {
  const Node& n = node(i);
  const AttentionHeads heads = heads_of(n);
  if (n.in[1]) write_kv(n, heads.params.cache_layer);
  const int tile_tokens = attention_tile_tokens(heads);
  tiles_.clear();
  for (size_t s = 0; s < in_.slots.size(); ++s) {
    for (int t = in_.seq_begin[s]; t < in_.seq_begin[s + 1]; t += tile_tokens) {
      tiles_.push_back({static_cast<int>(s), t, std::min(tile_tokens, in_.seq_begin[s + 1] - t)});
    }
  }
  std::ranges::reverse(tiles_);
  const size_t n_tasks = static_cast<size_t>(heads.kv.kv_heads) * heads.tasks_per_kv_head * tiles_.size();
  const bool is_split_kv = tokens_.size() <= kMaxSplitKvTokens;
  size_t max_chunks = 1;
  for (const AttentionTile& tile : tiles_) max_chunks = std::max(max_chunks, kv_chunks_of(heads, tile).size());
  const size_t chunks_per_task = is_split_kv ? max_chunks : 1, n_items = n_tasks * chunks_per_task;
  const size_t n_threads = static_cast<size_t>(threads_.n_threads()),
               items_per_thread = (n_items + n_threads - 1) / n_threads;
  threads_.parallel_for(items_per_thread * n_threads, [&](size_t begin, size_t end) {
    for (size_t flat = begin; flat < end; ++flat) {
      const size_t item = flat % items_per_thread * n_threads + flat / items_per_thread;
      if (item >= n_items) continue;
      const QueryRows rows = rows_of(i, heads, item / chunks_per_task);
      const KvChunks kv_chunks = kv_chunks_of(heads, rows.tile);
      if (!is_split_kv) {
        attend_all(heads, rows, kv_chunks);
      } else if (const size_t chunk = item % chunks_per_task; chunk < kv_chunks.size()) {
        attend_chunk(heads, rows, kv_chunks, chunk);
      }
    }
  });
  if (is_split_kv) merge_chunks(i, heads, n_tasks);
}

CpuPlan::KvChunks CpuPlan::kv_chunks_of(const AttentionHeads& heads, const AttentionTile& tile) const {
  const auto position = [&](int token) { return int64_t{in_.positions[static_cast<size_t>(token)]}; };
  const int64_t window = heads.params.window;
  const int64_t oldest = window > 0 ? std::max<int64_t>(0, position(tile.first_token) - window + 1) : 0;
  const int64_t newest = position(tile.first_token + tile.n_tokens - 1), chunk_tokens = kChunkPages * kPageTokens;
  return {.begin = static_cast<int>(oldest / chunk_tokens),
          .end = static_cast<int>(newest / chunk_tokens) + 1,
          .first_page = static_cast<int>(oldest / kPageTokens),
          .end_page = static_cast<int>(newest / kPageTokens) + 1};
}

CpuPlan::QueryRows CpuPlan::rows_of(size_t i, const AttentionHeads& heads, size_t task) const {
  QueryRows rows;
  const size_t n_per_tile = static_cast<size_t>(heads.kv.kv_heads) * heads.tasks_per_kv_head;
  rows.tile = tiles_[task / n_per_tile];
  rows.kv_head = task % n_per_tile / heads.tasks_per_kv_head;
  const size_t task_in_kv_head = task % heads.tasks_per_kv_head;
  const size_t first = rows.kv_head * heads.heads_per_kv_head + task_in_kv_head * heads.heads_per_task;
  const size_t end = std::min(first + heads.heads_per_task, (rows.kv_head + 1) * heads.heads_per_kv_head);
  const size_t k_dim = static_cast<size_t>(heads.kv.k_dim), v_dim = static_cast<size_t>(heads.kv.v_dim);
  const std::vector<float>* sinks = bound_[i].vectors[3];
  for (int token = rows.tile.first_token; token < rows.tile.first_token + rows.tile.n_tokens; ++token) {
    for (size_t head = first; head < end; ++head, ++rows.n_rows) {
      const size_t row_idx = static_cast<size_t>(token) * heads.n_heads + head;
      rows.index[rows.n_rows] = row_idx;
      rows.q[rows.n_rows] = data(node(i).in[0]) + row_idx * k_dim;
      rows.out[rows.n_rows] = data(node(i).out[0]) + row_idx * v_dim;
      rows.positions[rows.n_rows] = in_.positions[static_cast<size_t>(token)];
      rows.sinks[rows.n_rows] = sinks ? sinks->data() + head : nullptr;
    }
  }
  return rows;
}

// Attention of some rows over one chunk; the partial results go to acc and softmax.
void CpuPlan::attend(const AttentionHeads& heads, const QueryRows& rows, const KvChunks& kv_chunks, int chunk,
                     float* const* acc, SoftmaxState* softmax) const {
  const int first = std::max(kv_chunks.first_page, chunk * kChunkPages);
  const int end = std::min(kv_chunks.end_page, (chunk + 1) * kChunkPages);
  const int prefetch_end = std::min(kv_chunks.end_page, end + kPrefetchPages);
  const std::byte* pages[kChunkPages + kPrefetchPages];
  const int layer = heads.params.cache_layer;
  for (int p = first; p < prefetch_end; ++p) {
    const PageId page = page_at(cache_.group_of(layer), static_cast<size_t>(rows.tile.seq), p * kPageTokens);
    pages[p - first] = page == kNoPage ? nullptr : cache_.keys(layer, page, static_cast<int>(rows.kv_head));
  }
  cache_.layout().attend({.q = rows.q,
                          .acc = acc,
                          .rows = softmax,
                          .positions = rows.positions,
                          .n_rows = rows.n_rows,
                          .k_dim = heads.kv.k_dim,
                          .v_dim = heads.kv.v_dim,
                          .scale = heads.params.scale,
                          .softcap = heads.params.softcap,
                          .window = heads.params.window,
                          .pages = pages,
                          .first_page = first,
                          .end_page = end,
                          .prefetch_end = prefetch_end,
                          .scratch = thread_scratch().page.as<float>()});
}

void CpuPlan::attend_all(const AttentionHeads& heads, const QueryRows& rows, const KvChunks& kv_chunks) const {
  const ThreadScratch& scratch = thread_scratch();
  const size_t v_dim = padded_to_16(heads.kv.v_dim);
  float *total[kMaxAttentionRows], *partial[kMaxAttentionRows];
  SoftmaxState total_softmax[kMaxAttentionRows], partial_softmax[kMaxAttentionRows];
  for (size_t r = 0; r < static_cast<size_t>(rows.n_rows); ++r) {
    total[r] = scratch.total.as<float>() + r * v_dim;
    partial[r] = scratch.partial.as<float>() + r * v_dim;
    total_softmax[r] = kEmptySoftmax;
    std::fill_n(total[r], v_dim, 0.0f);
  }
  for (int chunk = kv_chunks.begin; chunk < kv_chunks.end; ++chunk) {
    attend(heads, rows, kv_chunks, chunk, partial, partial_softmax);
    for (int r = 0; r < rows.n_rows; ++r)
      kernels_.merge_value(partial_softmax[r], partial[r], v_dim, total_softmax[r], total[r]);
  }
  for (int r = 0; r < rows.n_rows; ++r) {
    kernels_.finish_attention(total_softmax[r], total[r], rows.sinks[r], static_cast<size_t>(heads.kv.v_dim),
                              rows.out[r]);
  }
}

void CpuPlan::attend_chunk(const AttentionHeads& heads, const QueryRows& rows, const KvChunks& kv_chunks,
                           size_t chunk) {
  const size_t v_dim = padded_to_16(heads.kv.v_dim),
               n_chunks = chunk_states_.size() / (kMaxSplitKvTokens * heads.n_heads);
  float* acc[kMaxAttentionRows];
  SoftmaxState softmax[kMaxAttentionRows];
  for (int r = 0; r < rows.n_rows; ++r) {
    acc[r] = chunk_sums_.as<float>() + (rows.index[r] * n_chunks + chunk) * v_dim;
  }
  attend(heads, rows, kv_chunks, kv_chunks.begin + static_cast<int>(chunk), acc, softmax);
  for (int r = 0; r < rows.n_rows; ++r) chunk_states_[rows.index[r] * n_chunks + chunk] = softmax[r];
}

void CpuPlan::merge_chunks(size_t i, const AttentionHeads& heads, size_t n_tasks) {
  const size_t v_dim = padded_to_16(heads.kv.v_dim),
               n_chunks = chunk_states_.size() / (kMaxSplitKvTokens * heads.n_heads);
  float* total = thread_scratch().total.as<float>();
  for (size_t task = 0; task < n_tasks; ++task) {
    const QueryRows rows = rows_of(i, heads, task);
    const size_t n_attended_chunks = kv_chunks_of(heads, rows.tile).size();
    for (int r = 0; r < rows.n_rows; ++r) {
      SoftmaxState softmax = kEmptySoftmax;
      std::fill_n(total, v_dim, 0.0f);
      for (size_t s = rows.index[r] * n_chunks; s < rows.index[r] * n_chunks + n_attended_chunks; ++s) {
        kernels_.merge_value(chunk_states_[s], chunk_sums_.as<float>() + s * v_dim, v_dim, softmax, total);
      }
      kernels_.finish_attention(softmax, total, rows.sinks[r], static_cast<size_t>(heads.kv.v_dim), rows.out[r]);
    }
  }
}

}  // namespace zinc::cpu
