// Causal short convolution over time, then SiLU. One thread per channel. Grid: channels / 256, sequences, blocks of kConvTokens
// tokens.
#version 460
#include "memory.glsl"
#include "activation.glsl"
#include "short_conv.glsl"
#include "counter_sync.glsl"

const int kStateChannels = 1;
#include "conv_state.glsl"

layout(set = 0, binding = 0, scalar) uniform Block { ShortConvParams p; };

float x_at(int t, int c) { return CoherentFloats(p.conv.x).data[t * p.conv.n_channels + c]; }

void convolve() {
  int c = int(gl_GlobalInvocationID.x), n_taps = p.conv.n_taps;
  if (c >= p.conv.n_channels || int(gl_WorkGroupID.y) >= step_count(kSeqs)) return;
  ConvSeq seq = conv_seq(int(gl_WorkGroupID.y));
  int begin = seq.begin + int(gl_WorkGroupID.z) * kConvTokens, end = min(seq.end, begin + kConvTokens);
  if (begin >= end) return;
  uint64_t state = conv_state(p.conv, seq.slot);
  float weight[kMaxTaps], window[kMaxTaps];  // right-aligned, the newest last
  [[unroll]] for (int j = 0; j < kMaxTaps; ++j) {
    int tap = j - (kMaxTaps - n_taps), t = begin - kMaxTaps + j, position = seq.first_position + t - seq.begin;
    weight[j] = tap >= 0 ? Floats(p.conv.weight).data[c * n_taps + tap] : 0.0;
    window[j] = 0;
    if (tap >= 1 && position >= 0) window[j] = t >= seq.begin ? x_at(t, c) : Floats(state).data[state_index(p.conv, position, c)];
  }
  if (begin == seq.begin) store_states(p.conv, seq, c);  // the workgroup that reads the state also updates it
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
