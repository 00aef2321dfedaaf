// The plan's attention over pages. The positions a row sees are cut into segments at fixed places; what each segment
// gives is merged in order. So a step of a few tokens at great depth is spread over the threads by segments, a prompt
// by tokens and heads, and both compute the same bits.
#include <algorithm>
#include <limits>

#include "backend/cpu/plan_rows.h"

namespace zinc::cpu {
namespace {

constexpr int kSegmentPages = 16;   // 512 positions: enough pieces for a few threads at a depth of some thousand
constexpr int kPagesAhead = 4;      // of the next segment, which the same thread computes as a rule
constexpr size_t kSplitTokens = 4;  // steps of so few tokens are spread by segments too

}  // namespace

PageId CpuPlan::page_at(int group, size_t seq, int32_t position) const {
  const PageTable& table = in_.page_tables[static_cast<size_t>(group)];
  ZINC_DCHECK(position / kPageTokens < table.stride);
  return table.entries[seq * static_cast<size_t>(table.stride) + static_cast<size_t>(position / kPageTokens)];
}

void CpuPlan::write_keys_and_values(const Node& n, int layer) {
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

// Room for each thread, and for what each segment gives each row in steps that are spread by segments.
Status CpuPlan::reserve_attention() {
  size_t most_rows = 0, most_dims = 0, most_page_floats = 0;
  for (const Node& n : graph_.nodes()) {
    if (n.op != Op::attention) continue;
    const AttentionParams& params = n.as<AttentionParams>();
    const int64_t in_cache = cache_.n_pages(cache_.group_of(params.cache_layer));
    const int64_t pages = params.window > 0 ? std::min(params.window / kPageTokens + 2, in_cache) : in_cache;
    const size_t n_segments = static_cast<size_t>(pages / kSegmentPages + 2);
    const size_t n_rows = kSplitTokens * static_cast<size_t>(graph_.info(n.in[0]).shape[0]) * n_segments;
    most_rows = std::max(most_rows, n_rows);
    const AttentionCache& kv = cache_.layer(params.cache_layer).attention;
    most_dims = std::max(most_dims, padded_to_16(kv.v_dim));
    most_page_floats = std::max(most_page_floats, attention_scratch_floats(kv.k_dim, kv.v_dim));
  }
  const size_t sum_bytes = most_dims * kMaxAttentionRows * sizeof(float);
  for (ThreadScratch& scratch : scratch_) {
    if (Status s = take(scratch.page, most_page_floats * sizeof(float), "attention"); !s.ok()) return s;
    if (Status s = take(scratch.whole, sum_bytes, "attention"); !s.ok()) return s;
    if (Status s = take(scratch.part, sum_bytes, "attention"); !s.ok()) return s;
  }
  if (Status s = take(segment_sums_, most_rows * most_dims * sizeof(float), "attention"); !s.ok()) return s;
  segment_rows_.resize(most_rows);
  return ok_status();
}

CpuPlan::Heads CpuPlan::heads_of(const Node& n) const {
  const AttentionParams& params = n.as<AttentionParams>();
  Heads heads{.params = params, .kv = cache_.layer(params.cache_layer).attention};
  heads.n = static_cast<size_t>(graph_.info(n.in[0]).shape[0]);
  heads.per_kv = heads.n / static_cast<size_t>(heads.kv.kv_heads);
  heads.per_task = std::min<size_t>(heads.per_kv, kMaxAttentionRows);
  heads.n_splits = (heads.per_kv + heads.per_task - 1) / heads.per_task;
  return heads;
}

// Tasks are (tile of tokens, kv head), the largest first: prompts come behind answers, and their last tokens look back
// farthest. They are dealt to the threads in turn, so that each begins with large ones and ends with small ones, which
// others can take.
void CpuPlan::run_attention(size_t i) {
  const Node& n = node(i);
  const Heads heads = heads_of(n);
  if (n.in[1]) write_keys_and_values(n, heads.params.cache_layer);
  const int tile_tokens = static_cast<int>(std::max<size_t>(1, kMaxAttentionRows / heads.per_task));
  tiles_.clear();
  for (size_t s = 0; s < in_.slots.size(); ++s) {
    for (int t = in_.seq_begin[s]; t < in_.seq_begin[s + 1]; t += tile_tokens) {
      tiles_.push_back({static_cast<int>(s), t, std::min(tile_tokens, in_.seq_begin[s + 1] - t)});
    }
  }
  std::ranges::reverse(tiles_);
  const size_t n_tasks = static_cast<size_t>(heads.kv.kv_heads) * heads.n_splits * tiles_.size();
  const bool by_segments = tokens_.size() <= kSplitTokens;
  size_t most_segments = 1;
  for (const AttentionTile& tile : tiles_) most_segments = std::max(most_segments, segments_of(heads, tile).size());
  const size_t n_pieces = by_segments ? most_segments : 1, n_items = n_tasks * n_pieces;
  const size_t n_threads = static_cast<size_t>(threads_.n_threads()), n_each = (n_items + n_threads - 1) / n_threads;
  threads_.parallel_for(n_each * n_threads, [&](size_t begin, size_t end) {
    for (size_t place = begin; place < end; ++place) {
      const size_t item = place % n_each * n_threads + place / n_each;
      if (item >= n_items) continue;
      const QueryRows rows = rows_of(i, heads, item / n_pieces);
      const Segments segments = segments_of(heads, rows.tile);
      if (!by_segments) {
        attend_all(heads, rows, segments);
      } else if (const size_t segment = item % n_pieces; segment < segments.size()) {
        attend_segment(heads, rows, segments, segment);
      }
    }
  });
  if (by_segments) merge_segments(i, heads, n_tasks);
}

CpuPlan::Segments CpuPlan::segments_of(const Heads& heads, const AttentionTile& tile) const {
  const auto position = [&](int token) { return int64_t{in_.positions[static_cast<size_t>(token)]}; };
  const int64_t window = heads.params.window;
  const int64_t oldest = window > 0 ? std::max<int64_t>(0, position(tile.first_token) - window + 1) : 0;
  const int64_t newest = position(tile.first_token + tile.n_tokens - 1), span = kSegmentPages * kPageTokens;
  return {.begin = static_cast<int>(oldest / span),
          .end = static_cast<int>(newest / span) + 1,
          .first_page = static_cast<int>(oldest / kPageTokens),
          .end_page = static_cast<int>(newest / kPageTokens) + 1};
}

CpuPlan::QueryRows CpuPlan::rows_of(size_t i, const Heads& heads, size_t task) const {
  QueryRows rows;
  const size_t n_per_tile = static_cast<size_t>(heads.kv.kv_heads) * heads.n_splits;
  rows.tile = tiles_[task / n_per_tile];
  rows.kv_head = task % n_per_tile / heads.n_splits;
  const size_t split = task % heads.n_splits;
  const size_t first = rows.kv_head * heads.per_kv + split * heads.per_task;
  const size_t end = std::min(first + heads.per_task, (rows.kv_head + 1) * heads.per_kv);
  const size_t k_dim = static_cast<size_t>(heads.kv.k_dim), v_dim = static_cast<size_t>(heads.kv.v_dim);
  const std::vector<float>* sinks = bound_[i].vectors[3];
  for (int token = rows.tile.first_token; token < rows.tile.first_token + rows.tile.n_tokens; ++token) {
    for (size_t head = first; head < end; ++head, ++rows.n) {
      const size_t row = static_cast<size_t>(token) * heads.n + head;
      rows.index[rows.n] = row;
      rows.q[rows.n] = data(node(i).in[0]) + row * k_dim;
      rows.out[rows.n] = data(node(i).out[0]) + row * v_dim;
      rows.positions[rows.n] = in_.positions[static_cast<size_t>(token)];
      rows.sinks[rows.n] = sinks ? sinks->data() + head : nullptr;
    }
  }
  return rows;
}

// One segment of some rows: sums and softmaxes into acc and softmax.
void CpuPlan::attend(const Heads& heads, const QueryRows& rows, const Segments& segments, int segment,
                     float* const* acc, AttentionRow* softmax) const {
  const int first = std::max(segments.first_page, segment * kSegmentPages);
  const int end = std::min(segments.end_page, (segment + 1) * kSegmentPages);
  const int listed_end = std::min(segments.end_page, end + kPagesAhead);
  const std::byte* pages[kSegmentPages + kPagesAhead];
  const int layer = heads.params.cache_layer;
  for (int p = first; p < listed_end; ++p) {
    const PageId page = page_at(cache_.group_of(layer), static_cast<size_t>(rows.tile.seq), p * kPageTokens);
    pages[p - first] = page == kNoPage ? nullptr : cache_.keys(layer, page, static_cast<int>(rows.kv_head));
  }
  cache_.layout().attend({.q = rows.q,
                          .acc = acc,
                          .rows = softmax,
                          .positions = rows.positions,
                          .n_rows = rows.n,
                          .k_dim = heads.kv.k_dim,
                          .v_dim = heads.kv.v_dim,
                          .scale = heads.params.scale,
                          .softcap = heads.params.softcap,
                          .window = heads.params.window,
                          .pages = pages,
                          .first_page = first,
                          .end_page = end,
                          .listed_end = listed_end,
                          .scratch = own_scratch().page.as<float>()});
}

void CpuPlan::attend_all(const Heads& heads, const QueryRows& rows, const Segments& segments) const {
  const ThreadScratch& scratch = own_scratch();
  const size_t v_dim = padded_to_16(heads.kv.v_dim);
  float *whole[kMaxAttentionRows], *part[kMaxAttentionRows];
  AttentionRow whole_row[kMaxAttentionRows], part_row[kMaxAttentionRows];
  for (size_t r = 0; r < static_cast<size_t>(rows.n); ++r) {
    whole[r] = scratch.whole.as<float>() + r * v_dim;
    part[r] = scratch.part.as<float>() + r * v_dim;
    whole_row[r] = kSawNothing;
    std::fill_n(whole[r], v_dim, 0.0f);
  }
  for (int segment = segments.begin; segment < segments.end; ++segment) {
    attend(heads, rows, segments, segment, part, part_row);
    for (int r = 0; r < rows.n; ++r) kernels_.merge_attention(part_row[r], part[r], v_dim, whole_row[r], whole[r]);
  }
  for (int r = 0; r < rows.n; ++r) {
    kernels_.finish_attention(whole_row[r], whole[r], rows.sinks[r], static_cast<size_t>(heads.kv.v_dim), rows.out[r]);
  }
}

void CpuPlan::attend_segment(const Heads& heads, const QueryRows& rows, const Segments& segments, size_t segment) {
  const size_t v_dim = padded_to_16(heads.kv.v_dim), n_segments = segment_rows_.size() / (kSplitTokens * heads.n);
  float* acc[kMaxAttentionRows];
  AttentionRow softmax[kMaxAttentionRows];
  for (int r = 0; r < rows.n; ++r) {
    acc[r] = segment_sums_.as<float>() + (rows.index[r] * n_segments + segment) * v_dim;
  }
  attend(heads, rows, segments, segments.begin + static_cast<int>(segment), acc, softmax);
  for (int r = 0; r < rows.n; ++r) segment_rows_[rows.index[r] * n_segments + segment] = softmax[r];
}

void CpuPlan::merge_segments(size_t i, const Heads& heads, size_t n_tasks) {
  const size_t v_dim = padded_to_16(heads.kv.v_dim), n_segments = segment_rows_.size() / (kSplitTokens * heads.n);
  float* whole = own_scratch().whole.as<float>();
  for (size_t task = 0; task < n_tasks; ++task) {
    const QueryRows rows = rows_of(i, heads, task);
    const size_t n_seen = segments_of(heads, rows.tile).size();
    for (int r = 0; r < rows.n; ++r) {
      AttentionRow softmax = kSawNothing;
      std::fill_n(whole, v_dim, 0.0f);
      for (size_t s = rows.index[r] * n_segments; s < rows.index[r] * n_segments + n_seen; ++s) {
        kernels_.merge_attention(segment_rows_[s], segment_sums_.as<float>() + s * v_dim, v_dim, softmax, whole);
      }
      kernels_.finish_attention(softmax, whole, rows.sinks[r], static_cast<size_t>(heads.kv.v_dim), rows.out[r]);
    }
  }
}

}  // namespace zinc::cpu
