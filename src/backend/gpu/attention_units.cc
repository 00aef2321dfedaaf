#include "backend/gpu/attention_units.h"

#include <algorithm>
#include <cstddef>

#include "base/ceil_div.h"

namespace zinc::gpu {

static_assert(sizeof(AttentionUnit) == kAttentionUnitInts * sizeof(int) &&
              offsetof(AttentionUnit, first_partial) == kAttentionUnitPartial * sizeof(int));

namespace {

// The chunks that a position sees.
struct Chunks {
  int first, end;
  int count() const { return end - first; }
};
Chunks chunks_of(int position, int window) {
  const int oldest = window > 0 ? std::max(0, position - window + 1) : 0;
  return {oldest / kChunkPositions, position / kChunkPositions + 1};
}

bool has_split_rows(const StepInputs& in, size_t seq) {
  return in.seq_begin[seq + 1] - in.seq_begin[seq] <= kMaxSplitTokens;
}

template <class Call>
void for_each_split_row(const StepInputs& in, int window, const Call& call) {
  for (size_t s = 0; s < in.slots.size(); ++s) {
    if (!has_split_rows(in, s)) continue;
    const int n_cached = in.positions[static_cast<size_t>(in.seq_begin[s])];
    for (int t = in.seq_begin[s]; t < in.seq_begin[s + 1]; ++t) {
      call(t, n_cached, chunks_of(in.positions[static_cast<size_t>(t)], window));
    }
  }
}

}  // namespace

AttentionUnitLimits::AttentionUnitLimits(const Bucket& bucket, int kv_heads, int n_blocks, int n_chunks)
    : max_rows(static_cast<int>(std::min<int64_t>(bucket.max_tokens, int64_t{bucket.max_seqs} * kMaxSplitTokens))),
      target_units(static_cast<int>(ceil_div(n_blocks, std::max(1, kv_heads)))),
      max_units(max_rows + target_units),
      max_partials(std::min(max_rows, kMaxSplitRows) * n_chunks) {}

int cut_attention_units(const StepInputs& in, int window, const AttentionUnitLimits& limits,
                        std::span<AttentionUnit> units, std::span<int> prefill_tokens) {
  int n_chunks = 0, n_rows = 0;
  for_each_split_row(in, window, [&](int, int, const Chunks& chunks) {
    n_chunks += chunks.count();
    ++n_rows;
  });
  ZINC_CHECK(n_rows <= limits.max_rows);
  const int unit_chunks = static_cast<int>(std::max<int64_t>(1, ceil_div(n_chunks, limits.target_units)));
  int n_units = 0, n_partials = 0;
  for (size_t t = 0; t < prefill_tokens.size(); ++t) prefill_tokens[t] = static_cast<int>(t);
  for_each_split_row(in, window, [&](int t, int n_cached, const Chunks& chunks) {
    const bool has_memory = n_partials + chunks.count() <= limits.max_partials;
    const bool is_split = chunks.count() > unit_chunks && has_memory;
    const int length = is_split ? unit_chunks : chunks.count();
    for (int first = chunks.first; first < chunks.end; first += length) {
      units[static_cast<size_t>(n_units++)] = {.token = t,
                                               .first_chunk = first,
                                               .end_chunk = std::min(first + length, chunks.end),
                                               .n_units = static_cast<int>(ceil_div(chunks.count(), length)),
                                               .position = in.positions[static_cast<size_t>(t)],
                                               .n_cached = n_cached,
                                               .page_row = 0,
                                               .first_partial = n_partials};
    }
    if (is_split) n_partials += chunks.count();
    prefill_tokens[static_cast<size_t>(t)] = -1;
  });
  int prefill_token = static_cast<int>(prefill_tokens.size());
  for (size_t t = prefill_tokens.size(); t-- > 0;) {
    if (prefill_tokens[t] >= 0) prefill_token = prefill_tokens[t];
    prefill_tokens[t] = prefill_token;
  }
  return n_units;
}

}  // namespace zinc::gpu
