// Norm and RoPE of q, k and v heads before attention; keys and values go to the KV cache, queries to q_out. One warp per head.
#version 460
#include "memory.glsl"
#include "reduce.glsl"
#include "quantize.glsl"
#include "rope.glsl"
#include KV_FORMAT
#include "qk_norm_rope.glsl"
#include "counter_sync.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { QkNormRopeParams p; };

void prepare_heads() {
  int n_heads = p.parts[kQuery].n_heads + p.parts[kKey].n_heads + p.parts[kValue].n_heads;
  int n_tokens = rows_of(p.n_rows), first = int(gl_WorkGroupID.x) * kWarps, index = first + warp_id();
  if (first >= n_tokens * n_heads) return;
  bool has_head = index < n_tokens * n_heads;
  int t = has_head ? index / n_heads : 0, head = index % n_heads, qkv = kQuery;
  for (; qkv < kValue && head >= p.parts[qkv].n_heads; ++qkv) head -= p.parts[qkv].n_heads;
  prefetch_head(p.parts[qkv], t, Ints(step.positions).data[t], has_head);
  prepare_head(p.parts[qkv], t, head, has_head);
  bool is_cached = has_head && qkv > kQuery;
  int position = is_cached ? Ints(step.positions).data[t] : 0;
  uint64_t dst = 0ul;
  if (is_cached) {
    int page = page_at(page_table_of(p.kv.group, Ints(step.seq_of_token).data[t]), position);
    dst = head_of(p.kv, page, head) + uint64_t(qkv == kValue ? p.kv.value_begin : 0);
  }
  store_head(dst, qkv == kKey, padded(qkv == kKey ? p.kv.k_dim : p.kv.v_dim), position, is_cached);
  if (qkv > kQuery || !has_head) return;
  int dim = p.parts[kQuery].dim, base = warp_id() * kHeadSegments * kSegmentElems;
  for (int i = lane_id(); i < dim; i += 32) {
    CoherentFloats(p.q_out).data[(t * p.parts[kQuery].n_heads + head) * dim + i] = head_values[base + i];
  }
}

void main() {
  wait_producers(p.sync);
  prepare_heads();
  signal_done(p.sync);
}
