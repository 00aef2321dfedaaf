// Causal short convolution over time, then SiLU. One thread per channel. Grid: channels / 256, sequences, blocks of kConvTokens
// tokens.
#version 460
#include "memory.glsl"
#include "activation.glsl"
#include "short_conv.glsl"
#include "counter_sync.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { ShortConvParams p; };

int seq_begin, first_position;  // the sequence's first token in the step, and its position

float x_at(int t, int c) { return CoherentFloats(p.conv.x).data[t * p.conv.n_channels + c]; }

void convolve() {
  int c = int(gl_GlobalInvocationID.x), seq = int(gl_WorkGroupID.y), n_taps = p.conv.n_taps;
  if (c >= p.conv.n_channels || seq >= step_count(kSeqs)) return;
  seq_begin = Ints(step.seq_begin).data[seq];
  int seq_end = Ints(step.seq_begin).data[seq + 1];
  int begin = seq_begin + int(gl_WorkGroupID.z) * kConvTokens, end = min(seq_end, begin + kConvTokens);
  if (begin >= end) return;
  first_position = Ints(step.positions).data[seq_begin];
  uint64_t state = conv_state(p.conv, Ints(step.slots).data[seq]);
  float weight[kMaxTaps], window[kMaxTaps];  // right-aligned, the newest last
  [[unroll]] for (int j = 0; j < kMaxTaps; ++j) {
    int tap = j - (kMaxTaps - n_taps), t = begin - kMaxTaps + j, position = first_position + t - seq_begin;
    weight[j] = tap >= 0 ? Floats(p.conv.weight).data[c * n_taps + tap] : 0.0;
    window[j] = 0;
    if (tap >= 1 && position >= 0) window[j] = t >= seq_begin ? x_at(t, c) : Floats(state).data[state_index(p.conv, position, c)];
  }
  if (begin == seq_begin) {  // the workgroup that reads the state also updates it
    for (int t = max(seq_begin, seq_end - n_taps); t < seq_end; ++t) {
      Floats(state).data[state_index(p.conv, first_position + t - seq_begin, c)] = x_at(t, c);
    }
  }
  for (int t = begin; t < end; ++t) {
    [[unroll]] for (int j = 0; j + 1 < kMaxTaps; ++j) window[j] = window[j + 1];
    window[kMaxTaps - 1] = x_at(t, c);
    precise float sum = 0;
    [[unroll]] for (int j = 0; j < kMaxTaps; ++j) sum = fma(weight[j], window[j], sum);
    precise float y = sum * sigmoid(sum);
    CoherentFloats(p.conv.out_).data[t * p.conv.n_channels + c] = y;
  }
}

void main() {
  wait_producers(p.sync);
  convolve();
  signal_done(p.sync);
}
