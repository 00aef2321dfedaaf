// Attention over the paged KV cache: the part shared by attention.comp and attention_coopmat.comp. Positions are cut into
// KV chunks of 256 at fixed boundaries. Each chunk has its own partial softmax (maximum, sum, and values weighted by the
// probabilities); merge_softmax() merges chunks in order. One workgroup loops over all chunks, or several share them (kSplitKv:
// split-KV; the last workgroup to finish merges). A row's result is bit-identical either way, whatever rows share its workgroup.
// kFused (decode): the workgroup also applies norm and RoPE to its queries, and to the new key and value if they are in its
// chunk. Grid: tiles of heads that share a KV head; tiles of tokens; KV splits. kUnits (many sequences): before the tiles of
// tokens come the units of gpu/attention_units.h, a part of one token's chunks each.
#include "memory.glsl"
#include "reduce.glsl"
#include "activation.glsl"
#include "quantize.glsl"
#include "rope.glsl"
#include KV_FORMAT
#include "qk_norm_rope.glsl"
#include "counter_sync.glsl"

layout(constant_id = kSpecAttentionRows) const int N = 2;  // rows per workgroup; a row is one head of one token
layout(constant_id = kSpecAttentionSplitKv) const int kSplitKv = 1;
layout(constant_id = kSpecAttentionUnits) const int kUnits = 0;
layout(constant_id = kSpecAttentionFused) const int kFused = 0;
layout(constant_id = kSpecAttentionKeyDim) const int kKeyDim = 128;  // padded to a multiple of 32
layout(constant_id = kSpecAttentionValueDim) const int kValueDim = 128;

layout(set = 0, binding = 0, scalar) uniform Block { AttentionParams p; };

shared vec2 running_softmax[N];  // maximum score and sum of all chunks so far
shared vec2 chunk_softmax[N];  // of the current chunk
shared uint is_last_workgroup;

// Implemented by attention.comp and attention_coopmat.comp.
void store_query(int r, int vec4_idx, vec4 q);  // elements 4 * vec4_idx .. + 3 of row r, zero-padded
void clear_accumulators();
void attend_chunk(int chunk, int partial_index);  // REQUIRES: every thread of the workgroup calls
void write_results();  // REQUIRES: every thread of the workgroup calls

// The workgroup's rows: consecutive tokens of one sequence, and heads that share a KV head.
int tile_seq, tile_token, tile_tokens, tile_kv_head, tile_head, tile_heads, tile_rows, tile_position, tile_oldest;
int tile_page_table;  // page_table_of() its sequence
int tile_first_partial, tile_partials;  // split-KV: partial results of the token, per head
bool is_split_kv;  // split-KV: other workgroups process other chunks of the same rows

int row_position(int r) { return tile_position + r / tile_heads; }
int row_token(int r) { return tile_token + r / tile_heads; }
int row_head(int r) { return tile_head + r % tile_heads; }
int last_position() { return tile_position + tile_tokens - 1; }

// Online softmax: rescaling factors of the running result and of the chunk. REQUIRES: the chunk has an unmasked position.
void merge_softmax(inout vec2 running, vec2 chunk, out float old_scale, out float new_scale) {
  float new_max = max(running.x, chunk.x);
  old_scale = running.x == kNegInf ? 0.0 : exp(running.x - new_max);
  new_scale = exp(chunk.x - new_max);
  precise float sum = fma(running.y, old_scale, chunk.y * new_scale);
  running = vec2(new_max, sum);
}
float merge_value(float running, float chunk, float old_scale, float new_scale) {
  precise float merged = fma(running, old_scale, chunk * new_scale);
  return merged;
}
// The attention sink adds to the denominator only.
float final_factor(vec2 softmax, int head) {
  float old_scale = 1, new_scale;
  if (p.sinks != 0ul) merge_softmax(softmax, vec2(Floats(p.sinks).data[head], 1.0), old_scale, new_scale);
  precise float factor = old_scale / softmax.y;
  return factor;
}

void write_result(int r, int dim, float result, vec2 softmax) {
  int head = row_head(r);
  precise float y = result * final_factor(softmax, head);
  if (p.gate != 0ul) y = gated(p.gate_act, CoherentFloats(p.gate).data[head * p.gate_stride + dim], y);
  CoherentFloats(p.out_).data[(row_token(r) * p.n_heads + head) * p.kv.v_dim + dim] = y;
}

uint64_t keys_of(int position) { return head_of(p.kv, page_at(tile_page_table, position), tile_kv_head); }

int n_value_vec4s() { return (p.kv.v_dim + 3) / 4; }
uint64_t partial_of(int head, int chunk) {
  return p.partial + uint64_t(tile_first_partial * p.n_heads + head * tile_partials + chunk) * uint64_t((n_value_vec4s() + 1) * 16);
}
void write_partial_softmax(int r, int partial_index) {
  CoherentQuads(partial_of(row_head(r), partial_index)).data[n_value_vec4s()] = vec4(chunk_softmax[r], 0, 0);
}

// Address of the warp's page within a chunk; 0: every position is masked.
uint64_t page_in_chunk(int chunk) {
  int first = chunk * kChunkPositions + warp_id() * kPageTokens, begin = max(first, tile_oldest);
  return begin < min(first + kPageTokens, last_position() + 1) ? keys_of(begin) : 0ul;
}

// Merges one vec4 of a row over all chunks, in order.
void merge_chunks(int r, int vec4_idx, int n_chunks, out vec4 result, out vec2 softmax) {
  const int kChunksInFlight = 8;
  result = vec4(0);
  softmax = vec2(kNegInf, 0);
  for (int first = 0; first < n_chunks; first += kChunksInFlight) {
    vec4 values[kChunksInFlight], softmaxes[kChunksInFlight];
    [[unroll]] for (int k = 0; k < kChunksInFlight; ++k) {
      uint64_t chunk = partial_of(row_head(r), min(first + k, n_chunks - 1));
      values[k] = CoherentQuads(chunk).data[vec4_idx];
      softmaxes[k] = CoherentQuads(chunk).data[n_value_vec4s()];
    }
    [[unroll]] for (int k = 0; k < kChunksInFlight; ++k) {
      if (first + k >= n_chunks || softmaxes[k].x == kNegInf) continue;
      float old_scale, new_scale;
      merge_softmax(softmax, softmaxes[k].xy, old_scale, new_scale);
      precise vec4 merged = fma(result, vec4(old_scale), values[k] * new_scale);
      result = merged;
    }
  }
}

// Counts finished chunks; the last workgroup merges all of them. Returns whether this was the last.
bool merge_splits(int n_chunks, int n_own_chunks) {
  memoryBarrierBuffer();
  barrier();
  if (thread_id() == 0) {
    uint64_t counter = p.done_counters + uint64_t(uint(tile_token) * gl_NumWorkGroups.x + gl_WorkGroupID.x) * 4ul;
    uint before = atomicAdd(Counter(counter).count, uint(n_own_chunks));
    is_last_workgroup = before + uint(n_own_chunks) == uint(n_chunks) ? 1u : 0u;
    if (is_last_workgroup != 0u) Counter(counter).count = 0u;
  }
  barrier();
  if (is_last_workgroup == 0u) return false;
  memoryBarrierBuffer();
  for (int i = thread_id(); i < tile_rows * n_value_vec4s(); i += kThreads) {
    int r = i / n_value_vec4s(), vec4_idx = i % n_value_vec4s();
    vec4 result;
    vec2 softmax;
    merge_chunks(r, vec4_idx, n_chunks, result, softmax);
    [[unroll]] for (int k = 0; k < 4; ++k) {
      if (4 * vec4_idx + k < p.kv.v_dim) write_result(r, 4 * vec4_idx + k, result[k], softmax);
    }
  }
  return true;
}

// Elements of row r, zero past the end of the head; rows past the end of the tile repeat the last.
vec4 query_vec4(int r, int vec4_idx) {
  r = min(r, tile_rows - 1);
  int row = (row_token(r) * p.n_heads + row_head(r)) * p.kv.k_dim;
  vec4 q = vec4(0);
  if ((p.kv.k_dim & 3) == 0) {
    if (4 * vec4_idx < p.kv.k_dim) q = FloatQuads(p.q).data[row / 4 + vec4_idx];
  } else {
    [[unroll]] for (int k = 0; k < 4; ++k) {
      if (4 * vec4_idx + k < p.kv.k_dim) q[k] = Floats(p.q).data[row + 4 * vec4_idx + k];
    }
  }
  return q;
}

void load_queries(bool is_warm_up) {
  if (kFused != 0) {  // one warp per row, plus one each for the new key and value if they belong to this workgroup's chunks
    int chunk = tile_position / kChunkPositions - tile_oldest / kChunkPositions;
    bool has_new = p.parts[kKey].x != 0ul && chunk % int(gl_NumWorkGroups.z) == int(gl_WorkGroupID.z);
    for (int first = 0; first < tile_rows + 2; first += kWarps) {
      int item = first + warp_id(), qkv = clamp(item - tile_rows + 1, kQuery, kValue);
      bool is_row = item < tile_rows, is_new = has_new && !is_row && item < tile_rows + 2;
      int head = is_row ? tile_head + item : is_new ? tile_kv_head : 0;
      prefetch_head(p.parts[qkv], tile_token, tile_position, is_row || is_new);
      uint64_t page = is_new ? keys_of(tile_position) + uint64_t(qkv == kValue ? p.kv.value_begin : 0) : 0ul;
      if (first == 0 && !is_warm_up) wait_producers(p.sync);
      prepare_head(p.parts[qkv], tile_token, head, is_row || is_new);
      if (kTransformsKeys) transform_head(kKeyDim, kQueryFactor, is_row);
      store_head(page, qkv == kKey, qkv == kKey ? kKeyDim : kValueDim, tile_position, is_new && !is_warm_up);
      if (is_row) {
        for (int i = lane_id(); i < kKeyDim / 4; i += 32) store_query(item, i, head_vec4(4 * i));
      }
    }
    groupMemoryBarrier();  // publishes the new key and value; only this workgroup reads them
    return;
  }
  if (kTransformsKeys) {  // a block of 32 per thread
    for (int i = thread_id(); i < N * kKeyDim / 32; i += kThreads) {
      int r = i / (kKeyDim / 32), block = i % (kKeyDim / 32);
      vec4 q[8];
      [[unroll]] for (int k = 0; k < 8; ++k) q[k] = query_vec4(r, block * 8 + k);
      hadamard_32(q, kQueryFactor);
      [[unroll]] for (int k = 0; k < 8; ++k) store_query(r, block * 8 + k, q[k]);
    }
    return;
  }
  for (int i = thread_id(); i < N * kKeyDim / 4; i += kThreads) {
    int r = i / (kKeyDim / 4), vec4_idx = i % (kKeyDim / 4);
    store_query(r, vec4_idx, query_vec4(r, vec4_idx));
  }
}

// Attends to the chunks begin, begin + stride, .. before end.
void attend_tile(int begin, int end, int stride) {
  int first = tile_oldest / kChunkPositions, n_chunks = last_position() / kChunkPositions - first + 1;
  if (begin >= end) return;
  int n_own_chunks = (end - begin + stride - 1) / stride;
  // The warm-up pass writes neither the new key and value nor partial results: an earlier layer may still read its own.
  [[dont_unroll]] for (int pass = 1 - kWarmUp; pass < 2; ++pass) {
    is_split_kv = n_own_chunks < n_chunks && pass == 1;
    load_queries(pass == 0);
    clear_accumulators();
    if (thread_id() < N) running_softmax[thread_id()] = vec2(kNegInf, 0);
    barrier();
    int pass_end = pass == 0 ? begin + 1 : end;
    for (int chunk = begin; chunk < pass_end; chunk += stride) attend_chunk(chunk, chunk - first);
  }
  bool is_written = true;
  if (is_split_kv) {
    is_written = merge_splits(n_chunks, n_own_chunks);
  } else {
    write_results();
  }
  barrier();
  if (kFused != 0 && is_written) signal_done(p.sync);  // once per tile
}

// The rows of tokens `token` to `end` - 1 that belong to its sequence.
void select_tokens(int token, int end) {
  int heads_per_kv_head = p.n_heads / p.kv.kv_heads, tiles = (heads_per_kv_head + p.heads_per_tile - 1) / p.heads_per_tile;
  int head_in_kv_head = int(gl_WorkGroupID.x) % tiles * p.heads_per_tile;
  tile_kv_head = int(gl_WorkGroupID.x) / tiles;
  tile_seq = kFused != 0 ? 0 : Ints(step.seq_of_token).data[token];
  tile_token = token;
  tile_tokens = kFused != 0 ? 1 : min(end, Ints(step.seq_begin).data[tile_seq + 1]) - token;
  tile_page_table = page_table_of(p.kv.group, tile_seq);
  tile_head = tile_kv_head * heads_per_kv_head + head_in_kv_head;
  tile_heads = min(p.heads_per_tile, heads_per_kv_head - head_in_kv_head);
  tile_rows = tile_tokens * tile_heads;
  tile_position = Ints(step.positions).data[token];
  tile_oldest = p.window > 0 ? max(0, tile_position - p.window + 1) : 0;
  tile_first_partial = token * p.n_chunks;
  tile_partials = p.n_chunks;
}

bool is_split_row(int token) { return Ints(step.counts).data[p.prefill_tokens + token] != token; }

void attend_unit(int unit) {
  if (unit >= Ints(step.counts).data[p.n_units]) return;
  int from = p.units + kAttentionUnitInts * unit, token = Ints(step.counts).data[from];
  select_tokens(token, token + 1);
  tile_first_partial = Ints(step.counts).data[from + kAttentionUnitPartial];
  tile_partials = last_position() / kChunkPositions + 1 - tile_oldest / kChunkPositions;
  attend_tile(Ints(step.counts).data[from + 1], Ints(step.counts).data[from + 2], 1);
}

void attend() {
  if (kUnits != 0 && int(gl_WorkGroupID.y) < p.max_units) {
    attend_unit(int(gl_WorkGroupID.y));
    return;
  }
  // Tiles with the most positions first, so that the tail is short.
  int tile = int(gl_NumWorkGroups.y - 1u - gl_WorkGroupID.y), first = tile * p.tokens_per_tile, n_tokens = rows_of(p.n_rows);
  int split = kSplitKv != 0 ? int(gl_WorkGroupID.z) : 0, stride = kSplitKv != 0 ? int(gl_NumWorkGroups.z) : 1;
  int end = min(n_tokens, first + p.tokens_per_tile);
  for (int t = first; t < end; t += tile_tokens) {  // one sequence at a time
    select_tokens(t, end);
    if (kUnits != 0 && is_split_row(t)) continue;
    attend_tile(tile_oldest / kChunkPositions + split, last_position() / kChunkPositions + 1, stride);
  }
}

void main() {
  attend();
  if (kFused == 0) signal_done(p.sync);
}
