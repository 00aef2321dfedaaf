// Attention over paged keys and values: what is the same however a chunk is attended to. Positions are cut into chunks of
// 256 at fixed places. Each chunk's softmax is finished alone (its largest score, sum and weighted values), then chunks are
// merged in order by one function: whether a workgroup loops over its chunks or many take one each (kSplit; the last to
// finish merges), and whatever rows share a workgroup, a row's result is the same to the bit. With kFused (steps of one
// token) the workgroup also prepares the heads: its queries, and the new key and value where its chunk has them.
// Grid: tiles of heads that share keys, tiles of tokens, splits of the chunks.
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "rotation.glsl"
#include "kv.glsl"
#include "head.glsl"
#include "chain.glsl"

layout(constant_id = 1) const int N = 2;          // rows (a token's head) of a workgroup
layout(constant_id = 2) const int kSplit = 1;
layout(constant_id = 3) const int kFused = 0;
layout(constant_id = 4) const int kKeyDim = 128;  // padded to 32
layout(constant_id = 5) const int kValueDim = 128;

struct Params {
  Chain chain;
  KvLayer kv;
  HeadPart parts[3];  // where kFused
  uint64_t q, sinks, out_;
  uint64_t partial;   // [tokens, heads, n_chunks, v_dim in fours, and the largest score and the sum]
  uint64_t counters;  // [tokens, tiles of heads]: workgroups that are done, zero between steps
  uint64_t gate;      // of the result, in steps of one token; 0: none
  int n_rows, n_heads, heads_per_tile, tokens_per_tile, n_chunks, window;
  float scale, softcap;
  int gate_stride, gate_act;  // from head to head
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

shared vec2 all_room[N];    // the largest score and the sum so far
shared vec2 chunk_room[N];  // of this chunk
shared uint is_last;

// Of a way to attend to chunks.
void keep_query(int r, int four, vec4 q);  // numbers 4 * four .. + 3 of row r, padded with zeros
void begin_results();
void attend_chunk(int chunk, int slot);  // REQUIRES: every thread of the workgroup calls
void write_results();                    // likewise

// Some consecutive tokens of one sequence, some heads that share keys: the rows of a workgroup.
int tile_seq, tile_token, tile_tokens, tile_kv_head, tile_head, tile_heads, tile_rows, tile_position, tile_oldest;
int tile_table;   // of its pages
bool is_divided;  // other workgroups have chunks of the same rows

int row_position(int r) { return tile_position + r / tile_heads; }
int row_token(int r) { return tile_token + r / tile_heads; }
int row_head(int r) { return tile_head + r % tile_heads; }
int last_position() { return tile_position + tile_tokens - 1; }

// How much a result so far and a chunk's count when merged. REQUIRES: the chunk saw something.
void merge(inout vec2 all, vec2 chunk, out float keep, out float take) {
  float largest = max(all.x, chunk.x);
  keep = all.x == kLowest ? 0.0 : exp(all.x - largest);
  take = exp(chunk.x - largest);
  precise float sum = fma(all.y, keep, chunk.y * take);
  all = vec2(largest, sum);
}
float merged(float all, float chunk, float keep, float take) {
  precise float both = fma(all, keep, chunk * take);
  return both;
}
// The sink takes part in the softmax and has no value.
float final_factor(vec2 all, int head) {
  float keep = 1, take;
  if (p.sinks != 0ul) merge(all, vec2(Floats(p.sinks).at[head], 1.0), keep, take);
  precise float factor = keep / all.y;
  return factor;
}

// Of a number of the result; asked for before it is needed.
float gate_at(int r, int dim) {
  return p.gate != 0ul ? PassedFloats(p.gate).at[row_head(r) * p.gate_stride + dim] : 0.0;
}
void write_result(int r, int dim, float result, vec2 all, float gate) {
  int head = row_head(r);
  precise float y = result * final_factor(all, head);
  if (p.gate != 0ul) y = gated(p.gate_act, gate, y);
  PassedFloats(p.out_).at[(row_token(r) * p.n_heads + head) * p.kv.v_dim + dim] = y;
}

uint64_t keys_of(int position) { return head_of(p.kv, page_at(tile_table, position), tile_kv_head); }

int value_fours() { return (p.kv.v_dim + 3) / 4; }
uint64_t partial_of(int token, int head, int chunk) {
  return p.partial + uint64_t((token * p.n_heads + head) * p.n_chunks + chunk) * uint64_t((value_fours() + 1) * 16);
}
void write_partial_sums(int r, int slot) {
  PassedQuads(partial_of(row_token(r), row_head(r), slot)).at[value_fours()] = vec4(chunk_room[r], 0, 0);
}

// Of the warp's page of a chunk, which its threads' positions are in; 0: nobody sees it.
uint64_t page_in_chunk(int chunk) {
  int first = chunk * kChunkPositions + warp_id() * kPagePositions, begin = max(first, tile_oldest);
  return begin < min(first + kPagePositions, last_position() + 1) ? keys_of(begin) : 0ul;
}

// Four numbers of a row's chunks, in order.
void merge_chunks(int r, int four, int n_chunks, out vec4 result, out vec2 all) {
  const int kAtOnce = 12;
  result = vec4(0);
  all = vec2(kLowest, 0);
  for (int first = 0; first < n_chunks; first += kAtOnce) {
    vec4 values[kAtOnce];
    vec2 sums[kAtOnce];
    [[unroll]] for (int k = 0; k < kAtOnce; ++k) {
      uint64_t chunk = partial_of(row_token(r), row_head(r), min(first + k, n_chunks - 1));
      values[k] = PassedQuads(chunk).at[four];
      sums[k] = PassedPairs(chunk).at[2 * value_fours()];
    }
    [[unroll]] for (int k = 0; k < kAtOnce; ++k) {
      if (first + k >= n_chunks || sums[k].x == kLowest) continue;
      float keep, take;
      merge(all, sums[k], keep, take);
      precise vec4 both = fma(result, vec4(keep), values[k] * take);
      result = both;
    }
  }
}

// The chunks of each row, by whoever finishes last. Whether it was this workgroup.
bool merge_splits(int n_chunks, int n_groups) {
  memoryBarrierBuffer();
  barrier();
  if (thread_id() == 0) {
    uint64_t counter = p.counters + uint64_t(gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * 4ul;
    uint before = atomicAdd(Counter(counter).count, 1u);
    is_last = before + 1u == uint(n_groups) ? 1u : 0u;
    if (is_last != 0u) Counter(counter).count = 0u;
  }
  barrier();
  if (is_last == 0u) return false;
  memoryBarrierBuffer();
  for (int i = thread_id(); i < tile_rows * value_fours(); i += kThreads) {
    int r = i / value_fours(), four = i % value_fours();
    vec4 result, gates;
    vec2 all;
    [[unroll]] for (int k = 0; k < 4; ++k) gates[k] = gate_at(r, min(4 * four + k, p.kv.v_dim - 1));
    merge_chunks(r, four, n_chunks, result, all);
    [[unroll]] for (int k = 0; k < 4; ++k) {
      if (4 * four + k < p.kv.v_dim) write_result(r, 4 * four + k, result[k], all, gates[k]);
    }
  }
  return true;
}

void load_queries(bool rehearses) {
  if (kFused != 0) {  // a warp per row, and one each for the new key and value where this workgroup's chunks have them
    int chunk = tile_position / kChunkPositions - tile_oldest / kChunkPositions;
    bool has_new = p.parts[1].x != 0ul && chunk % int(gl_NumWorkGroups.z) == int(gl_WorkGroupID.z);
    for (int first = 0; first < tile_rows + 2; first += kWarps) {
      int item = first + warp_id(), which = clamp(item - tile_rows + 1, 0, 2);
      bool is_row = item < tile_rows, is_new = has_new && !is_row && item < tile_rows + 2;
      int head = is_row ? tile_head + item : is_new ? tile_kv_head : 0;
      begin_head(p.parts[which], tile_position, is_row || is_new);
      uint64_t page = is_new ? keys_of(tile_position) + uint64_t(which == 2 ? p.kv.value_begin : 0) : 0ul;
      if (first == 0 && !rehearses) wait_for_group(p.chain);
      prepare_head(p.parts[which], tile_token, head, is_row || is_new);
      store_head(page, which == 1, which == 1 ? kKeyDim : kValueDim, tile_position, is_new && !rehearses);
      if (is_row) {
        for (int i = lane_id(); i < kKeyDim / 4; i += 32) keep_query(item, i, head_four(4 * i));
      }
    }
    groupMemoryBarrier();  // keys and values, which this workgroup alone reads
    return;
  }
  for (int i = thread_id(); i < N * kKeyDim / 4; i += kThreads) {
    int r = min(i / (kKeyDim / 4), tile_rows - 1), four = i % (kKeyDim / 4);  // rows past the last repeat it
    int row = (row_token(r) * p.n_heads + row_head(r)) * p.kv.k_dim;
    vec4 q = vec4(0);
    if ((p.kv.k_dim & 3) == 0) {
      if (4 * four < p.kv.k_dim) q = FloatQuads(p.q).at[row / 4 + four];
    } else {
      [[unroll]] for (int k = 0; k < 4; ++k) {
        if (4 * four + k < p.kv.k_dim) q[k] = Floats(p.q).at[row + 4 * four + k];
      }
    }
    keep_query(i / (kKeyDim / 4), four, q);
  }
}

void attend_tile() {
  int first = tile_oldest / kChunkPositions, last = last_position() / kChunkPositions;
  int begin = kSplit != 0 ? int(gl_WorkGroupID.z) : 0, stride = kSplit != 0 ? int(gl_NumWorkGroups.z) : 1;
  if (first + begin > last) return;
  int n_groups = min(stride, last - first + 1);
  // Neither the new key and value nor partial results are written in a rehearsal: an earlier layer may still read its own.
  [[dont_unroll]] for (int pass = kRehearses == 0 || starts_late(p.chain) ? 1 : 0; pass < 2; ++pass) {
    is_divided = n_groups > 1 && pass == 1;
    load_queries(pass == 0);
    begin_results();
    if (thread_id() < N) all_room[thread_id()] = vec2(kLowest, 0);
    barrier();
    int end = pass == 0 ? first + begin : last;
    for (int chunk = first + begin; chunk <= end; chunk += stride) attend_chunk(chunk, chunk - first);
  }
  bool is_written = true;
  if (is_divided) {
    is_written = merge_splits(last - first + 1, n_groups);
  } else {
    write_results();
  }
  barrier();
  if (is_written) count_workgroup(p.chain);  // once for each tile
}

void main() {
  // The last tokens, which see the most, first: what is left at the end is short.
  int tile = int(gl_NumWorkGroups.y - 1u - gl_WorkGroupID.y), first = tile * p.tokens_per_tile, n_tokens = rows_of(p.n_rows);
  if (first >= n_tokens) return;
  int group_heads = p.n_heads / p.kv.kv_heads, tiles = (group_heads + p.heads_per_tile - 1) / p.heads_per_tile;
  int head_in_group = int(gl_WorkGroupID.x) % tiles * p.heads_per_tile, end = min(n_tokens, first + p.tokens_per_tile);
  tile_kv_head = int(gl_WorkGroupID.x) / tiles;
  for (int t = first; t < end;) {  // tokens of one sequence at a time
    tile_seq = kFused != 0 ? 0 : Ints(step.seq_of_token).at[t];
    tile_token = t;
    tile_tokens = kFused != 0 ? 1 : min(end, Ints(step.seq_begin).at[tile_seq + 1]) - t;
    tile_table = table_of(p.kv.group, tile_seq);
    tile_head = tile_kv_head * group_heads + head_in_group;
    tile_heads = min(p.heads_per_tile, group_heads - head_in_group);
    tile_rows = tile_tokens * tile_heads;
    tile_position = Ints(step.positions).at[t];
    tile_oldest = p.window > 0 ? max(0, tile_position - p.window + 1) : 0;
    attend_tile();
    t += tile_tokens;
  }
}
