// Causal convolution over time, then SiLU; the last inputs are the sequence's state. One thread per channel, its tokens
// one after the other. Grid: channels / 256, sequences.
#version 460
#include "memory.glsl"
#include "arithmetic.glsl"

const int kMaxTaps = 8;
struct Params {
  uint64_t x, weight, out_;
  uint64_t states, slot_bytes;  // of slot 0: [taps-1, channels], oldest first
  int n_channels, n_taps;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

void main() {
  int c = int(gl_GlobalInvocationID.x), seq = int(gl_WorkGroupID.y);
  if (c >= p.n_channels || seq >= step_count(kSeqs)) return;
  int begin = Ints(step.seq_begin).at[seq], end = Ints(step.seq_begin).at[seq + 1];
  if (begin == end) return;
  bool is_fresh = Ints(step.positions).at[begin] == 0;
  uint64_t state = p.states + uint64_t(Ints(step.slots).at[seq]) * p.slot_bytes;
  float weight[kMaxTaps], window[kMaxTaps];  // right-aligned, the newest last
  [[unroll]] for (int j = 0; j < kMaxTaps; ++j) {
    int tap = j - (kMaxTaps - p.n_taps);
    weight[j] = tap >= 0 ? Floats(p.weight).at[c * p.n_taps + tap] : 0.0;
    window[j] = tap >= 1 && !is_fresh ? Floats(state).at[(tap - 1) * p.n_channels + c] : 0.0;
  }
  for (int t = begin; t < end; ++t) {
    [[unroll]] for (int j = 0; j + 1 < kMaxTaps; ++j) window[j] = window[j + 1];
    window[kMaxTaps - 1] = Floats(p.x).at[t * p.n_channels + c];
    precise float sum = 0;
    [[unroll]] for (int j = 0; j < kMaxTaps; ++j) sum = fma(weight[j], window[j], sum);
    precise float y = sum * sigmoid(sum);
    Floats(p.out_).at[t * p.n_channels + c] = y;
  }
  [[unroll]] for (int j = 1; j < kMaxTaps; ++j) {
    int tap = j - (kMaxTaps - (p.n_taps - 1));
    if (tap >= 0) Floats(state).at[tap * p.n_channels + c] = window[j];
  }
}
