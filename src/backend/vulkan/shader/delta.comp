// The gated delta rule over those of a sequence's tokens that make no whole chunk, one after the other; S stays in registers
// from the first to the last. Keys, queries, values and gates of a run of tokens lie in shared memory, the next run's are on
// their way meanwhile. Grid: column tiles, value heads, sequences.
#version 460
#include "memory.glsl"
#include "lanes.glsl"
#include "arithmetic.glsl"
#include "delta_chunks.glsl"

const int kColumns = 32, kRun = 2048 / kMaxKeys;           // tokens of a run
const int kKeyFours = kRun * kMaxKeys / 4, kLoads = kKeyFours / kThreads;
const int kAtOnce = 2;                                     // tokens
const int kValueLoads = (kRun * kColumns + kThreads - 1) / kThreads;

shared vec4 key_room[kKeyFours], query_room[kKeyFours];
shared float value_room[kRun * kColumns];  // values; each is replaced by what its token gives
shared vec2 gate_room[kRun];

vec4 keys_ahead[kLoads], queries_ahead[kLoads];
float values_ahead[kValueLoads];
vec2 gates_ahead;

// A run from token t on; tokens past the last repeat it.
void load_run(int t, int end, int h, int first_column) {
  Delta d = p.delta;
  [[unroll]] for (int i = 0; i < kLoads; ++i) {
    int at = (i * kThreads + thread_id()) * 4, token = min(t + at / kMaxKeys, end - 1);
    keys_ahead[i] = load_four(head_row(d.k, token, h), at % kMaxKeys, d.k_dim);
    queries_ahead[i] = load_four(head_row(d.q, token, h), at % kMaxKeys, d.k_dim);
  }
  [[unroll]] for (int i = 0; i < kValueLoads; ++i) {
    int at = i * kThreads + thread_id(), token = min(t + at / kColumns, end - 1), column = first_column + at % kColumns;
    values_ahead[i] = column < d.v_dim ? Floats(d.v).at[(token * d.v_heads + h) * d.v_dim + column] : 0.0;
  }
  int gate = min(t + min(thread_id(), kRun - 1), end - 1) * d.v_heads + h;
  gates_ahead = vec2(Floats(d.alpha).at[gate], Floats(d.beta).at[gate]);
}

void store_run(float dt_bias, float a) {
  [[unroll]] for (int i = 0; i < kLoads; ++i) {
    key_room[i * kThreads + thread_id()] = keys_ahead[i];
    query_room[i * kThreads + thread_id()] = queries_ahead[i];
  }
  [[unroll]] for (int i = 0; i < kValueLoads; ++i) {
    int at = i * kThreads + thread_id();
    if (at < kRun * kColumns) value_room[at] = values_ahead[i];
  }
  if (thread_id() < kRun) {
    Gates gates = gates_of(gates_ahead.x, gates_ahead.y, dt_bias, a);
    gate_room[thread_id()] = vec2(gates.decay, gates.beta);
  }
}

// Tokens i .. i + n - 1 of the run. What they give is summed up together: nothing waits for it.
void take_some(int i, const int n, int in_tile) {
  vec4 results[kAtOnce];
  [[unroll]] for (int t = 0; t < kAtOnce; ++t) {
    if (t >= n) break;
    [[unroll]] for (int j = 0; j < kFours; ++j) {
      keys[j] = key_room[((i + t) * kMaxKeys + first_row(j)) / 4];
      queries[j] = query_room[((i + t) * kMaxKeys + first_row(j)) / 4];
    }
    vec2 gates = gate_room[i + t];
    results[t] = take_token(value_room[(i + t) * kColumns + in_tile], Gates(gates.x, gates.y));
  }
  [[unroll]] for (int t = 0; t < kAtOnce; ++t) {
    if (t >= n) break;
    float y = finished(p.delta, results[t]);
    if (part_id() == 0) value_room[(i + t) * kColumns + in_tile] = y;
  }
}

void write_run(int t, int end, int h, int first_column) {
  for (int i = thread_id(); i < kRun * kColumns; i += kThreads) {
    int token = t + i / kColumns, column = first_column + i % kColumns;
    if (token < end && column < p.delta.v_dim) {
      Floats(p.delta.out_).at[(token * p.delta.v_heads + h) * p.delta.v_dim + column] = value_room[i];
    }
  }
}

void main() {
  int h = int(gl_WorkGroupID.y), seq = int(gl_WorkGroupID.z), first_column = int(gl_WorkGroupID.x) * kColumns;
  if (seq >= step_count(kSeqs)) return;
  Run run = run_of(seq);
  int begin = run.begin, end = run.end;
  if (p.prepared != 0ul && p.part == kBeforeChunks && run.n_chunks > 0) end = run.chunks;
  if (p.part == kAfterChunks) begin = run.n_chunks > 0 ? run.chunks + run.n_chunks * kChunk : end;
  if (begin >= end) return;
  Delta d = p.delta;
  int in_tile = thread_id() / 8, column = first_column + in_tile;
  bool is_inside = column < d.v_dim;
  uint64_t state = delta_state(d, Ints(step.slots).at[seq], h);
  load_run(begin, end, h, first_column);
  load_state(d, state, column, is_inside && Ints(step.positions).at[begin] > 0);
  float dt_bias = Floats(d.dt_bias).at[h], a = Floats(d.a).at[h];
  for (int t = begin; t < end; t += kRun) {
    store_run(dt_bias, a);
    barrier();
    if (t + kRun < end) load_run(t + kRun, end, h, first_column);
    int n_tokens = min(kRun, end - t);
    int i = 0;
    for (; i + kAtOnce <= n_tokens; i += kAtOnce) take_some(i, kAtOnce, in_tile);
    for (; i < n_tokens; ++i) take_some(i, 1, in_tile);
    barrier();
    write_run(t, end, h, first_column);
    barrier();
  }
  store_state(d, state, column, is_inside);
}
