// Causal convolution over time, then SiLU. One thread per channel. Grid: channels / 256, sequences, runs of kConvTokens
// tokens.
#version 460
#include "memory.glsl"
#include "arithmetic.glsl"
#include "taps.glsl"

const int kConvTokens = 16;
struct Params {
  Conv conv;
};
layout(set = 0, binding = 0, scalar) uniform Block { Params p; };

int run, first;  // the sequence's first token in the step, and its position

float x_at(int t, int c) { return Floats(p.conv.x).at[t * p.conv.n_channels + c]; }

void main() {
  int c = int(gl_GlobalInvocationID.x), seq = int(gl_WorkGroupID.y), n_taps = p.conv.n_taps;
  if (c >= p.conv.n_channels || seq >= step_count(kSeqs)) return;
  run = Ints(step.seq_begin).at[seq];
  int run_end = Ints(step.seq_begin).at[seq + 1];
  int begin = run + int(gl_WorkGroupID.z) * kConvTokens, end = min(run_end, begin + kConvTokens);
  if (begin >= end) return;
  first = Ints(step.positions).at[run];
  uint64_t state = conv_state(p.conv, Ints(step.slots).at[seq]);
  float weight[kMaxTaps], window[kMaxTaps];  // right-aligned, the newest last
  [[unroll]] for (int j = 0; j < kMaxTaps; ++j) {
    int tap = j - (kMaxTaps - n_taps), t = begin - kMaxTaps + j, position = first + t - run;
    weight[j] = tap >= 0 ? Floats(p.conv.weight).at[c * n_taps + tap] : 0.0;
    window[j] = 0;
    if (tap >= 1 && position >= 0) window[j] = t >= run ? x_at(t, c) : Floats(state).at[place_in_state(p.conv, position, c)];
  }
  if (begin == run) {  // who reads the state also moves it on
    for (int t = max(run, run_end - n_taps); t < run_end; ++t) {
      Floats(state).at[place_in_state(p.conv, first + t - run, c)] = x_at(t, c);
    }
  }
  for (int t = begin; t < end; ++t) {
    [[unroll]] for (int j = 0; j + 1 < kMaxTaps; ++j) window[j] = window[j + 1];
    window[kMaxTaps - 1] = x_at(t, c);
    precise float sum = 0;
    [[unroll]] for (int j = 0; j < kMaxTaps; ++j) sum = fma(weight[j], window[j], sum);
    precise float y = sum * sigmoid(sum);
    Floats(p.conv.out_).at[t * p.conv.n_channels + c] = y;
  }
}
