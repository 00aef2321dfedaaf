// How far a pair of numbers turns at a position: cosine and sine of the position's multiple of 512, turned on by those of
// the rest. The tables are the host's, made in double precision.
struct Turns {
  uint64_t coarse, fine;  // [.., n_pairs] of cosine and sine; 0: no rotation
  int n_pairs, adjacent;
};
const int kFinePositions = 512;

vec2 turn_at(Turns turns, int position, int pair) {
  vec2 a = FloatPairs(turns.coarse).at[position / kFinePositions * turns.n_pairs + pair];
  vec2 b = FloatPairs(turns.fine).at[position % kFinePositions * turns.n_pairs + pair];
  precise vec2 both = vec2(fma(a.x, b.x, -(a.y * b.y)), fma(a.y, b.x, a.x * b.y));
  return both;
}
vec2 turned(vec2 x, vec2 turn) {
  precise vec2 y = vec2(fma(x.x, turn.x, -(x.y * turn.y)), fma(x.x, turn.y, x.y * turn.x));
  return y;
}
