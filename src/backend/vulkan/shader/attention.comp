// Attention over paged keys and values. Positions are cut into chunks of 256 at fixed places. Each chunk's softmax is
// finished alone (its largest score, sum and weighted values), then chunks are merged in order by one function: whether
// a workgroup loops over its chunks or many take one each (kSplit; the last to finish merges), and whatever rows share a
// workgroup, a row's result is the same to the bit. With kFused (steps of one token) the workgroup also prepares the
// heads: its queries, and the new key and value where its chunk has them.
// Grid: tiles of heads that share keys, tiles of tokens, splits of the chunks.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "rounding.glsl"
#include "rotation.glsl"
#include "kv.glsl"
#include "head.glsl"

layout(constant_id = 1) const int N = 2;          // rows (a token's head) of a workgroup
layout(constant_id = 2) const int kSplit = 1;
layout(constant_id = 3) const int kFused = 0;
layout(constant_id = 4) const int kKeyDim = 128;  // padded to 32
layout(constant_id = 5) const int kValueDim = 128;

struct Params {
  KvLayer kv;
  HeadPart parts[3];  // where kFused
  uint64_t q, sinks, out_;
  uint64_t partial;   // [tokens, heads, n_chunks, v_dim + 2]
  uint64_t counters;  // [tokens, tiles of heads]: workgroups that are done, zero between steps
  uint64_t gate;      // of the result, in steps of one token; 0: none
  int n_rows, n_heads, heads_per_tile, tokens_per_tile, n_chunks, window;
  float scale, softcap;
  int gate_stride, gate_act;  // from head to head
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

const int kRound = N < 4 ? N : 4;  // rows whose partial sums there is room for
shared vec4 q_room[N * kKeyDim / 4];
shared vec4 scores[N * kChunkPositions / 4];
shared vec4 partial_room[kWarps * kRound * 32];
shared float result_room[N * kValueDim];
shared vec2 all_room[N];    // the largest score and the sum so far
shared vec2 chunk_room[N];  // of this chunk
shared uint is_last;

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

void write_result(int r, int dim, float result, vec2 all) {
  int head = row_head(r);
  precise float y = result * final_factor(all, head);
  if (p.gate != 0ul) y = gated(p.gate_act, Floats(p.gate).at[head * p.gate_stride + dim], y);
  Floats(p.out_).at[(row_token(r) * p.n_heads + head) * p.kv.v_dim + dim] = y;
}

uint64_t keys_of(int position) { return head_of(p.kv, page_at(tile_table, position), tile_kv_head); }

void score_block(uint64_t keys, int position, int block, inout float score[N]) {
  vec4 key[8];
  load_key_block(keys, kKeyDim, position % kPagePositions, block, key);
  [[unroll]] for (int i = 0; i < 8; ++i) {
    [[unroll]] for (int r = 0; r < N; ++r) {
      vec4 q = q_room[r * (kKeyDim / 4) + block * 8 + i];
      precise float sum = fma(q.w, key[i].w, fma(q.z, key[i].z, fma(q.y, key[i].y, fma(q.x, key[i].x, score[r]))));
      score[r] = sum;
    }
  }
}

// Scores of one position per thread with every row; minus infinity where a row does not see it.
void score_chunk(int first, uint64_t keys) {
  int position = first + thread_id();
  bool is_seen = position >= tile_oldest && position <= last_position();
  float score[N];
  [[unroll]] for (int r = 0; r < N; ++r) score[r] = 0;
  if (is_seen) {
    if (N <= 2 && kKeyDim <= 128) {  // few rows: every load at once
      [[unroll]] for (int block = 0; block < kKeyDim / 32; ++block) score_block(keys, position, block, score);
    } else {
      for (int block = 0; block < kKeyDim / 32; ++block) score_block(keys, position, block, score);
    }
  }
  [[unroll]] for (int r = 0; r < N; ++r) {
    int newest = row_position(r);
    precise float s = score[r] * p.scale;
    if (p.softcap > 0) s = p.softcap * bounded_tanh(s / p.softcap);
    bool sees = is_seen && position <= newest && (p.window == 0 || position > newest - p.window);
    scores[(r * kChunkPositions + thread_id()) / 4][thread_id() % 4] = sees ? s : kLowest;
  }
}

// One warp per row: scores become weights, their largest and sum the chunk's.
void soften_chunk() {
  int r = warp_id(), base = min(r, N - 1) * kChunkPositions / 4;
  float largest = kLowest;
  precise float sum = 0;
  float weights[kChunkPositions / 32];
  for (int i = 0; i < kChunkPositions / 32; ++i) {
    weights[i] = scores[base + i * 8 + lane_id() / 4][lane_id() % 4];
    largest = max(largest, weights[i]);
  }
  largest = lanes_max(largest, 32);
  for (int i = 0; i < kChunkPositions / 32; ++i) {
    weights[i] = largest == kLowest ? 0.0 : exp(weights[i] - largest);
    sum = sum + weights[i];
  }
  float all = lanes_sum(sum, 32);
  if (r >= N) return;
  for (int i = 0; i < kChunkPositions / 32; ++i) scores[base + i * 8 + lane_id() / 4][lane_id() % 4] = weights[i];
  if (lane_id() == 0) chunk_room[r] = vec2(largest, all);
}

// Warp w sums the values of page w of the chunk for rows first_row .. + kRound - 1, four dimensions a lane, 128 at a
// time. Positions no row sees have no weight and are left out.
void weigh_values(uint64_t values, int first, int first_row, int first_dim) {
  int i = first_dim + lane_id() * 4, page_first = first + warp_id() * kPagePositions;
  vec4 sum[kRound];
  [[unroll]] for (int r = 0; r < kRound; ++r) sum[r] = vec4(0);
  int begin = max(page_first, tile_oldest), end = min(page_first + kPagePositions, last_position() + 1);
  if (begin < end && i < kValueDim) {
    [[unroll]] for (int j = 0; j < kPagePositions; j += 4) {
      vec4 v[4], weight[kRound];
      [[unroll]] for (int k = 0; k < 4; ++k) {
        int at = clamp(page_first + j + k, begin, end - 1);  // the nearest one's are read where nobody looks
        v[k] = load_value(values, kValueDim, at % kPagePositions, i);
      }
      [[unroll]] for (int r = 0; r < kRound; ++r) {
        weight[r] = scores[((first_row + r) * kChunkPositions + warp_id() * kPagePositions + j) / 4];
        [[unroll]] for (int k = 0; k < 4; ++k) {
          precise vec4 next = fma(vec4(weight[r][k]), v[k], sum[r]);
          sum[r] = next;
        }
      }
    }
  }
  [[unroll]] for (int r = 0; r < kRound; ++r) partial_room[(warp_id() * kRound + r) * 32 + lane_id()] = sum[r];
}

uint64_t partial_of(int token, int head, int chunk) {
  return p.partial + uint64_t((token * p.n_heads + head) * p.n_chunks + chunk) * uint64_t((p.kv.v_dim + 2) * 4);
}

// Of the warp's page of a chunk, which its threads' positions are in; 0: nobody sees it.
uint64_t page_in_chunk(int chunk) {
  int first = chunk * kChunkPositions + warp_id() * kPagePositions, begin = max(first, tile_oldest);
  return begin < min(first + kPagePositions, last_position() + 1) ? keys_of(begin) : 0ul;
}

void attend_chunk(int chunk, int slot, uint64_t page) {
  int first = chunk * kChunkPositions;
  score_chunk(first, page);
  barrier();
  soften_chunk();
  barrier();
  for (int first_row = 0; first_row < N; first_row += kRound) {
    for (int first_dim = 0; first_dim < kValueDim; first_dim += 128) {
      weigh_values(page + uint64_t(p.kv.value_begin), first, first_row, first_dim);
      barrier();
      for (int i = thread_id(); i < kRound * 128; i += kThreads) {
        int in_round = i / 128, r = first_row + in_round, dim = first_dim + i % 128;
        if (r >= tile_rows || dim >= p.kv.v_dim) continue;
        int at = in_round * 32 + i % 128 / 4;
        precise float sum = partial_room[at][i % 4];
        for (int w = 1; w < kWarps; ++w) sum = sum + partial_room[at + w * kRound * 32][i % 4];
        if (is_divided) {
          SharedFloats(partial_of(row_token(r), row_head(r), slot)).at[2 + dim] = sum;
        } else if (chunk_room[r].x != kLowest) {
          vec2 all = all_room[r];
          float keep, take;
          merge(all, chunk_room[r], keep, take);
          result_room[r * kValueDim + dim] = merged(result_room[r * kValueDim + dim], sum, keep, take);
        }
      }
      barrier();
    }
  }
  if (thread_id() < tile_rows) {
    int r = thread_id();
    if (is_divided) {
      uint64_t to = partial_of(row_token(r), row_head(r), slot);
      SharedFloats(to).at[0] = chunk_room[r].x;
      SharedFloats(to).at[1] = chunk_room[r].y;
    } else if (chunk_room[r].x != kLowest) {
      vec2 all = all_room[r];
      float keep, take;
      merge(all, chunk_room[r], keep, take);
      all_room[r] = all;
    }
  }
  barrier();
}

// The chunks of each row, in order, by whoever finishes last.
void merge_splits(int n_chunks, int n_groups) {
  memoryBarrierBuffer();
  barrier();
  if (thread_id() == 0) {
    uint64_t counter = p.counters + uint64_t(gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * 4ul;
    uint before = atomicAdd(Counter(counter).count, 1u);
    is_last = before + 1u == uint(n_groups) ? 1u : 0u;
    if (is_last != 0u) Counter(counter).count = 0u;
  }
  barrier();
  if (is_last == 0u) return;
  memoryBarrierBuffer();
  for (int i = thread_id(); i < tile_rows * p.kv.v_dim; i += kThreads) {
    int r = i / p.kv.v_dim, dim = i % p.kv.v_dim;
    vec2 all = vec2(kLowest, 0);
    float result = 0;
    for (int c = 0; c < n_chunks; ++c) {
      uint64_t chunk = partial_of(row_token(r), row_head(r), c);
      vec2 of_chunk = vec2(SharedFloats(chunk).at[0], SharedFloats(chunk).at[1]);
      if (of_chunk.x == kLowest) continue;
      float keep, take;
      merge(all, of_chunk, keep, take);
      result = merged(result, SharedFloats(chunk).at[2 + dim], keep, take);
    }
    write_result(r, dim, result, all);
  }
}

void load_queries() {
  if (kFused != 0) {  // a warp per row, and one each for the new key and value where this workgroup's chunks have them
    int chunk = tile_position / kChunkPositions - tile_oldest / kChunkPositions;
    bool has_new = p.parts[1].x != 0ul && chunk % int(gl_NumWorkGroups.z) == int(gl_WorkGroupID.z);
    int which = clamp(warp_id() - tile_rows + 1, 0, 2);
    bool is_row = warp_id() < tile_rows, is_new = has_new && !is_row && warp_id() < tile_rows + 2;
    int head = is_row ? tile_head + warp_id() : is_new ? tile_kv_head : 0;
    prepare_head(p.parts[which], tile_token, head, is_row || is_new);
    uint64_t page = is_new ? keys_of(tile_position) + uint64_t(which == 2 ? p.kv.value_begin : 0) : 0ul;
    store_head(page, which == 1, which == 1 ? kKeyDim : kValueDim, tile_position, is_new);
    if (is_row) {
      for (int i = lane_id(); i < kKeyDim / 4; i += 32) q_room[warp_id() * (kKeyDim / 4) + i] = head_four(4 * i);
    }
    memoryBarrierBuffer();
    return;
  }
  for (int i = thread_id(); i < N * kKeyDim; i += kThreads) {
    int r = min(i / kKeyDim, tile_rows - 1), k = i % kKeyDim;  // rows past the last repeat it
    float q = k < p.kv.k_dim ? Floats(p.q).at[(row_token(r) * p.n_heads + row_head(r)) * p.kv.k_dim + k] : 0.0;
    q_room[i / 4][i % 4] = q;
  }
}

void attend_tile() {
  int first = tile_oldest / kChunkPositions, last = last_position() / kChunkPositions;
  int begin = kSplit != 0 ? int(gl_WorkGroupID.z) : 0, stride = kSplit != 0 ? int(gl_NumWorkGroups.z) : 1;
  if (first + begin > last) return;
  int n_groups = min(stride, last - first + 1);
  is_divided = n_groups > 1;
  uint64_t page = page_in_chunk(first + begin);  // on its way while queries are made ready
  load_queries();
  for (int i = thread_id(); i < N * kValueDim; i += kThreads) result_room[i] = 0;
  if (thread_id() < N) all_room[thread_id()] = vec2(kLowest, 0);
  barrier();
  for (int chunk = first + begin; chunk <= last; chunk += stride) {
    if (chunk != first + begin) page = page_in_chunk(chunk);
    attend_chunk(chunk, chunk - first, page);
  }
  if (is_divided) {
    merge_splits(last - first + 1, n_groups);
    return;
  }
  for (int i = thread_id(); i < tile_rows * p.kv.v_dim; i += kThreads) {
    int r = i / p.kv.v_dim, dim = i % p.kv.v_dim;
    write_result(r, dim, result_room[r * kValueDim + dim], all_room[r]);
  }
  barrier();
}

void main() {
  int n_tokens = rows_of(p.n_rows), first = int(gl_WorkGroupID.y) * p.tokens_per_tile;
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
