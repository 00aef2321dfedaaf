// Heads rotated by position. One thread per pair, or per number that is not rotated.
#version 460
#include "memory.glsl"
#include "rotation.glsl"

struct Params {
  uint64_t x, out_;
  Turns turns;
  int n_rows, n_heads, head_dim;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

void main() {
  int per_head = p.head_dim - p.turns.n_pairs, index = flat_id();
  int i = index % per_head, head = index / per_head, t = head / p.n_heads;
  if (t >= rows_of(p.n_rows)) return;
  uint64_t at = uint64_t(head) * uint64_t(p.head_dim) * 4ul;
  if (i >= p.turns.n_pairs) {
    Floats(p.out_ + at).at[i + p.turns.n_pairs] = Floats(p.x + at).at[i + p.turns.n_pairs];
    return;
  }
  int first = p.turns.adjacent != 0 ? 2 * i : i, second = p.turns.adjacent != 0 ? 2 * i + 1 : i + p.turns.n_pairs;
  vec2 y = turned(vec2(Floats(p.x + at).at[first], Floats(p.x + at).at[second]),
                  turn_at(p.turns, Ints(step.positions).at[t], i));
  Floats(p.out_ + at).at[first] = y.x;
  Floats(p.out_ + at).at[second] = y.y;
}
