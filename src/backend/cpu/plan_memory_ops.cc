// The plan's ops that remember: attention over pages, convolution and delta rule over recurrent states.
#include <algorithm>

#include "backend/cpu/plan_rows.h"

namespace zinc::cpu {

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
                         keys + layout.value_offset(kv.k_dim));
    }
  });
}

namespace {

// A thread's own room for attention: decoded pages, accumulators, page addresses.
struct AttentionScratch {
  AlignedBuffer floats;
  std::vector<const std::byte*> pages;
};

AttentionScratch& attention_scratch(size_t n_floats, size_t n_pages) {
  thread_local AttentionScratch scratch;
  if (scratch.floats.size() < n_floats * sizeof(float))
    scratch.floats = AlignedBuffer::allocate(n_floats * sizeof(float));
  if (scratch.pages.size() < n_pages) scratch.pages.resize(n_pages * 2);
  return scratch;
}

}  // namespace

// Tasks are (kv head, tile of tokens), heads outermost: each thread then has early and late tokens alike, which differ
// in how far they look back.
void CpuPlan::run_attention(size_t i) {
  const Node& n = node(i);
  const AttentionParams& params = n.as<AttentionParams>();
  const int layer = params.cache_layer;
  if (n.in[1]) write_keys_and_values(n, layer);
  const AttentionCache& kv = cache_.layer(layer).attention;
  const size_t n_heads = static_cast<size_t>(graph_.info(n.in[0]).shape[0]), n_kv = static_cast<size_t>(kv.kv_heads);
  const size_t group = n_heads / n_kv, k_dim = static_cast<size_t>(kv.k_dim), v_dim = static_cast<size_t>(kv.v_dim);
  const size_t heads_per_task = std::min<size_t>(group, kMaxAttentionRows);
  const int tile_tokens = static_cast<int>(std::max<size_t>(1, kMaxAttentionRows / heads_per_task));
  tiles_.clear();
  for (size_t s = 0; s < in_.slots.size(); ++s) {
    for (int t = in_.seq_begin[s]; t < in_.seq_begin[s + 1]; t += tile_tokens) {
      tiles_.push_back({static_cast<int>(s), t, std::min(tile_tokens, in_.seq_begin[s + 1] - t)});
    }
  }
  const size_t n_splits = (group + heads_per_task - 1) / heads_per_task;  // more query heads than a task holds
  const std::vector<float>* sinks = bound_[i].vectors[3];
  threads_.parallel_for(n_kv * n_splits * tiles_.size(), [&](size_t begin, size_t end) {
    for (size_t task = begin; task < end; ++task) {
      const AttentionTile& tile = tiles_[task % tiles_.size()];
      const size_t split = task / tiles_.size() % n_splits, h = task / tiles_.size() / n_splits;
      const size_t first_head = h * group + split * heads_per_task;
      const size_t n_here = std::min(heads_per_task, (h + 1) * group - first_head);
      const float* q[kMaxAttentionRows];
      float* out[kMaxAttentionRows];
      float row_sinks[kMaxAttentionRows];
      int32_t positions[kMaxAttentionRows];
      int n_rows = 0;
      for (int t = tile.first_token; t < tile.first_token + tile.n_tokens; ++t) {
        for (size_t g = first_head; g < first_head + n_here; ++g, ++n_rows) {
          q[n_rows] = data(n.in[0]) + (static_cast<size_t>(t) * n_heads + g) * k_dim;
          out[n_rows] = data(n.out[0]) + (static_cast<size_t>(t) * n_heads + g) * v_dim;
          positions[n_rows] = in_.positions[static_cast<size_t>(t)];
          row_sinks[n_rows] = sinks ? (*sinks)[g] : 0;
        }
      }
      const int32_t last = positions[n_rows - 1];
      const size_t n_pages = static_cast<size_t>(last / kPageTokens) + 1;
      AttentionScratch& scratch = attention_scratch(attention_scratch_floats(kv.k_dim, kv.v_dim), n_pages);
      for (size_t p = 0; p < n_pages; ++p) {
        const PageId page =
            page_at(cache_.group_of(layer), static_cast<size_t>(tile.seq), static_cast<int32_t>(p) * kPageTokens);
        scratch.pages[p] = page == kNoPage ? nullptr : cache_.keys(layer, page, static_cast<int>(h));
      }
      kernels_.attention(cache_.layout(), {.q = q,
                                           .out = out,
                                           .positions = positions,
                                           .sinks = sinks ? row_sinks : nullptr,
                                           .n_rows = n_rows,
                                           .k_dim = kv.k_dim,
                                           .v_dim = kv.v_dim,
                                           .scale = params.scale,
                                           .softcap = params.softcap,
                                           .window = params.window,
                                           .pages = scratch.pages.data(),
                                           .scratch = scratch.floats.as<float>()});
    }
  });
}

void CpuPlan::run_short_conv(size_t i) {
  const Node& n = node(i);
  const int layer = n.as<ShortConvParams>().cache_layer;
  const size_t n_channels = width(n.in[0]);
  const std::vector<float>& weight = bound_[i].conv_weight;
  const size_t n_taps = weight.size() / n_channels, n_old = n_taps - 1;
  constexpr size_t kMaxTaps = 16;
  ZINC_CHECK(n_taps <= kMaxTaps);
  const float* x = data(n.in[0]);
  for_each_sequence([&](int slot, size_t begin, size_t end, bool fresh) {
    float* state = cache_.conv_state(layer, slot);  // [taps-1][channels], oldest first
    if (fresh) std::fill_n(state, n_old * n_channels, 0.0f);
    for_each_row(end - begin, [&](size_t t) {
      const float* rows[kMaxTaps];
      for (size_t j = 0; j < n_taps; ++j) {  // inputs t - (taps-1) + j of this run; earlier ones come from the state
        rows[j] = t + j >= n_old ? x + (begin + t + j - n_old) * n_channels : state + (t + j) * n_channels;
      }
      kernels_.short_conv(rows, weight.data(), static_cast<int>(n_taps), n_channels,
                          data(n.out[0]) + (begin + t) * n_channels);
    });
    const size_t n_new = std::min(n_old, end - begin);
    std::copy(state + n_new * n_channels, state + n_old * n_channels, state);
    std::copy(x + (end - n_new) * n_channels, x + end * n_channels, state + (n_old - n_new) * n_channels);
  });
}

void CpuPlan::run_delta_net(size_t i) {
  const Node& n = node(i);
  const DeltaNetParams& params = n.as<DeltaNetParams>();
  const RecurrentCache& shape = cache_.layer(params.cache_layer).recurrent;
  const size_t k_dim = static_cast<size_t>(shape.k_dim), v_dim = static_cast<size_t>(shape.v_dim);
  const size_t v_heads = static_cast<size_t>(shape.heads), k_heads = static_cast<size_t>(graph_.info(n.in[1]).shape[0]);
  for_each_sequence([&](int slot, size_t begin, size_t end, bool fresh) {
    float* states = cache_.delta_state(params.cache_layer, slot);
    threads_.parallel_for(v_heads, [&](size_t first, size_t last) {
      for (size_t h = first; h < last; ++h) {
        const size_t k_head = params.sharing == HeadSharing::grouped ? h / (v_heads / k_heads) : h % k_heads;
        float* state = states + h * k_dim * v_dim;
        if (fresh) std::fill_n(state, k_dim * v_dim, 0.0f);
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
