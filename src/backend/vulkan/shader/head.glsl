// What happens to a head of q, k or v before attention: a norm, a rotation, both or none. One warp per head.
layout(constant_id = 17) const int kEights = 1;         // 256 numbers of a head each: 1 or more
layout(constant_id = 18) const int kHeadFloats = 2048;  // room for them; 1 where none is prepared

struct HeadPart {
  uint64_t x;  // 0: no such part
  uint64_t norm_weight;
  Turns turns;
  int n_heads, dim, is_normed;
  float eps;
  int stride, unused;  // from head to head
};

shared float head_values[kHeadFloats];

const int kLanePairs = kEights * kSegmentElems / 64;  // of a head, a lane
Eight head_weights[kEights];
vec2 head_turns[kLanePairs];

// What prepare_head() needs besides the head itself.
void begin_head(HeadPart part, int position, bool is_inside) {
  int beyond = part.dim + 8;
  [[unroll]] for (int i = 0; i < kEights; ++i) {
    int at = i * kSegmentElems + lane_id() * 8;
    head_weights[i] = Eight(vec4(1), vec4(1));
    if (part.norm_weight != 0ul) head_weights[i] = load_eight(part.norm_weight, is_inside ? at : beyond, part.dim);
  }
  if (!is_inside || part.turns.coarse == 0ul) return;
  [[unroll]] for (int k = 0; k < kLanePairs; ++k) {
    int i = k * 32 + lane_id();
    if (i < part.turns.n_pairs) head_turns[k] = turn_at(part.turns, position, i);
  }
}

// Into the warp's part of head_values; numbers past `dim` are zero. Warps without a head (is_inside) go along. REQUIRES:
// begin_head().
void prepare_head(HeadPart part, int t, int head, bool is_inside) {
  uint64_t x = part.x + uint64_t((t * part.n_heads + head) * part.stride) * 4ul;
  int base = warp_id() * kEights * kSegmentElems, beyond = part.dim + 8;
  Eight eights[kEights];
  float sum = 0;
  [[unroll]] for (int i = 0; i < kEights; ++i) {
    int at = i * kSegmentElems + lane_id() * 8;
    eights[i] = load_passed(x, is_inside ? at : beyond, part.dim);
    sum = squares(eights[i], sum);
  }
  sum = lanes_sum(sum, 32);
  float factor = rms_factor(sum, part.dim, part.eps);
  [[unroll]] for (int i = 0; i < kEights; ++i) {
    int at = i * kSegmentElems + lane_id() * 8;
    if (part.is_normed != 0) {
      precise vec4 a = eights[i].a * factor;
      precise vec4 b = eights[i].b * factor;
      if (part.norm_weight != 0ul) {
        a = a * head_weights[i].a;
        b = b * head_weights[i].b;
      }
      eights[i] = Eight(a, b);
    }
    [[unroll]] for (int k = 0; k < 4; ++k) {
      head_values[base + at + k] = eights[i].a[k];
      head_values[base + at + 4 + k] = eights[i].b[k];
    }
  }
  barrier();
  if (is_inside && part.turns.coarse != 0ul) {
    [[unroll]] for (int k = 0; k < kLanePairs; ++k) {
      int i = k * 32 + lane_id();
      if (i >= part.turns.n_pairs) break;
      int first = base + (part.turns.adjacent != 0 ? 2 * i : i);
      int second = part.turns.adjacent != 0 ? first + 1 : first + part.turns.n_pairs;
      vec2 y = turned(vec2(head_values[first], head_values[second]), head_turns[k]);
      head_values[first] = y.x;
      head_values[second] = y.y;
    }
  }
  barrier();
}

vec4 head_four(int i) {
  int at = warp_id() * kEights * kSegmentElems + i;
  return vec4(head_values[at], head_values[at + 1], head_values[at + 2], head_values[at + 3]);
}

// The warp's prepared head into the cache, in the page at `at`. REQUIRES: every thread of the workgroup calls.
void store_head(uint64_t at, bool is_key, int dim, int position, bool is_inside) {
  for (int first = 0; first < kEights * kSegmentElems; first += 128) {
    int i = first + lane_id() * 4;
    uvec4 kept = kept_four(head_four(i));
    if (is_inside && i < dim) store_four(at, is_key, dim, position % kPagePositions, i, kept);
  }
}
