#include "backend/gpu/step_upload.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace zinc::gpu {
namespace {

constexpr size_t kUnitInts = sizeof(AttentionUnit) / sizeof(int);
static_assert(kMaxVerificationRows == 1 + kMaxDraftTokens);
constexpr size_t kUnitAlign = 4;  // in ints: kernels load 16 bytes

struct Columns {  // of a page table, begin to end - 1
  int begin = 0, end = 0;
};

// The columns of the pages with positions that sequence s reads or writes.
Columns columns_of(const StepInputs& in, size_t s, int window) {
  const int first = in.seq_begin[s], last = in.seq_begin[s + 1] - 1;
  if (last < first) return {};
  const int first_position = in.positions[static_cast<size_t>(first)];
  const int oldest = window > 0 ? std::max(0, first_position - window + 1) : 0;
  return {oldest / kPageTokens, in.positions[static_cast<size_t>(last)] / kPageTokens + 1};
}

// REQUIRES: page table g is filled.
void fill_attention_units(const StepInputs& in, int g, int window, const UploadLayout& layout, int max_seqs, int* to) {
  const UploadLayout::GroupUnits& group = layout.attention[static_cast<size_t>(g)];
  const std::span units(reinterpret_cast<AttentionUnit*>(to + group.units),
                        static_cast<size_t>(group.limits.max_units));
  const int n_units =
      cut_attention_units(in, window, group.limits, units, {to + group.prefill_tokens, in.tokens.size()});
  to[group.n_units] = n_units;
  const int* const first_columns = to + layout.first_column + static_cast<size_t>(g) * static_cast<size_t>(max_seqs);
  for (AttentionUnit& unit : units.first(static_cast<size_t>(n_units))) {
    const int seq = to[layout.seq_of_token + static_cast<size_t>(unit.token)];
    unit.page_row = to[kPageTableOffset + g] + seq * to[kPageTableStride + g] - first_columns[seq];
  }
}

// Writes page table g at index `begin`; returns the index behind it.
size_t fill_page_table(const StepInputs& in, int g, size_t begin, int window, const UploadLayout& layout, int max_seqs,
                       int* to) {
  const PageTable& table = in.page_tables[static_cast<size_t>(g)];
  const size_t n_seqs = in.slots.size();
  int stride = 0;
  for (size_t s = 0; s < n_seqs; ++s) {
    const Columns columns = columns_of(in, s, window);
    stride = std::max(stride, columns.end - columns.begin);
  }
  to[kPageTableStride + g] = stride;
  to[kPageTableOffset + g] = static_cast<int>(begin);
  const size_t end = begin + n_seqs * static_cast<size_t>(stride);
  ZINC_CHECK(end <= layout.n_ints);
  for (size_t s = 0; s < n_seqs; ++s) {
    const Columns columns = columns_of(in, s, window);
    ZINC_CHECK(columns.end <= table.stride);
    to[layout.first_column + static_cast<size_t>(g) * static_cast<size_t>(max_seqs) + s] = columns.begin;
    const PageId* from = table.entries.data() + s * static_cast<size_t>(table.stride);
    std::copy(from + columns.begin, from + columns.end, to + begin + s * static_cast<size_t>(stride));
  }
  return end;
}

void fill_sampling(const DeviceSampling& sampling, int* to) {
  const bool is_greedy = sampling.temperature <= kGreedyTemperature;
  const uint64_t uniform = std::bit_cast<uint64_t>(sampling.uniform);
  to[kInvTemperature] = std::bit_cast<int>(is_greedy ? 0.0f : 1.0f / sampling.temperature);
  to[kTopK] = sampling.top_k;
  to[kTopP] = std::bit_cast<int>(sampling.top_p);
  to[kLogMinP] = std::bit_cast<int>(std::log(sampling.min_p));  // min_p 0: minus infinity, which removes no token
  to[kUniformLow] = static_cast<int>(uniform);
  to[kUniformHigh] = static_cast<int>(uniform >> 32);
}

}  // namespace

UploadLayout::UploadLayout(const Bucket& bucket, const Cache& cache, const UploadOptions& options) {
  const size_t n_tokens = static_cast<size_t>(bucket.max_tokens), n_seqs = static_cast<size_t>(bucket.max_seqs);
  const size_t n_outputs = static_cast<size_t>(std::max(1, bucket.max_outputs));
  tokens = kCounts;
  positions = tokens + n_tokens;
  seq_of_token = positions + n_tokens;
  seq_begin = seq_of_token + n_tokens;
  slots = seq_begin + n_seqs + 1;
  row_slots = slots + n_seqs;
  output_rows = row_slots + n_tokens;
  logit_rows = output_rows + n_outputs;
  sampling = logit_rows + (options.has_logit_rows ? n_outputs : 0);
  first_column = sampling + n_outputs * kSamplingInts;
  size_t end = first_column + static_cast<size_t>(cache.n_groups()) * n_seqs;
  rope_scalings = bucket.n_rope_scalings > 1 ? end : 0;
  if (rope_scalings > 0) end += n_tokens;
  for (int g = 0; g < cache.n_groups() && options.attention_blocks > 0; ++g) {
    const AttentionUnitLimits limits(bucket, cache.min_kv_heads(g), options.attention_blocks, cache.max_chunks(g));
    const size_t n_units = end + n_tokens, units = (n_units + kUnitAlign) / kUnitAlign * kUnitAlign;
    attention.push_back({.limits = limits, .prefill_tokens = end, .n_units = n_units, .units = units});
    end = attention.back().units + kUnitInts * static_cast<size_t>(limits.max_units);
  }
  page_tables = end;
  n_ints = page_tables;
  for (int g = 0; g < cache.n_groups(); ++g) n_ints += n_seqs * static_cast<size_t>(cache.n_pages(g));
}

size_t fill_upload(const StepInputs& in, const UploadLayout& layout, const Cache& cache, int max_seqs, int* to) {
  const size_t n_seqs = in.slots.size();
  to[kTokens] = static_cast<int>(in.tokens.size());
  to[kSeqs] = static_cast<int>(n_seqs);
  to[kOutputs] = static_cast<int>(in.output_rows.size());
  to[layout.output_rows] = 0;  // a step without outputs may compute one that is ignored
  std::ranges::copy(in.tokens, to + layout.tokens);
  std::ranges::copy(in.positions, to + layout.positions);
  std::ranges::copy(in.seq_begin, to + layout.seq_begin);
  std::ranges::copy(in.slots, to + layout.slots);
  std::ranges::copy(in.output_rows, to + layout.output_rows);
  to[kSampledRows] = static_cast<int>(in.sampling.size());
  for (size_t i = 0; i < in.sampling.size(); ++i) {
    fill_sampling(in.sampling[i], to + layout.sampling + i * kSamplingInts);
  }
  for (size_t s = 0; s < n_seqs; ++s) {
    for (size_t row = static_cast<size_t>(in.seq_begin[s]); row < static_cast<size_t>(in.seq_begin[s + 1]); ++row) {
      to[layout.seq_of_token + row] = static_cast<int>(s);
      to[layout.row_slots + row] = in.state_slot(s, row);
      if (layout.rope_scalings > 0) to[layout.rope_scalings + row] = static_cast<int>(in.rope_scaling(s));
    }
  }
  size_t end = layout.page_tables;
  for (int g = 0; g < static_cast<int>(in.page_tables.size()); ++g) {
    end = fill_page_table(in, g, end, cache.window(g), layout, max_seqs, to);
  }
  for (int g = 0; g < static_cast<int>(layout.attention.size()); ++g) {
    fill_attention_units(in, g, cache.window(g), layout, max_seqs, to);
  }
  return end;
}

}  // namespace zinc::gpu
