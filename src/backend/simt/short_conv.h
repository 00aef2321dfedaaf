// A channel of a short convolution. The state is a ring buffer of the last n_taps inputs, position p at p % n_taps.
#pragma once

#include "backend/simt/device_common.h"

namespace zinc::simt {

// A sequence's tokens in the step and its state.
struct ConvSeq {
  int begin, end, position, slot;  // position: of the first token
  float* states;

  // A sequence that the step does not have has no tokens. The loads do not wait for each other.
  ZINC_DEVICE ConvSeq(const ConvParams& p, int seq) {
    const int n_seqs = p.step.counts[kSeqs], next = p.step.seq_begin[seq + 1];
    slot = p.step.slots[seq];
    begin = p.step.seq_begin[seq];
    end = seq < n_seqs ? next : begin;
    position = begin < end ? p.step.positions[begin] : 0;
    states = p.states + slot * p.slot_floats;
  }
  ZINC_DEVICE float state_at(const ConvParams& p, int n_taps, int c, int t) const {
    return states[static_cast<long long>((position + t - begin) % n_taps) * p.n_channels + c];
  }
  // Writes the state after each row that has a slot, of n channels, kThreads apart. REQUIRES: no other thread reads the
  // sequence's state of these channels any more.
  template <int n>
  ZINC_DEVICE void store_states(const ConvParams& p, int c) const {
    int own_row = end - 1, row = end;  // the state after own_row replaces the sequence's, after it was copied to others
    if (end - begin > 1 && end - begin <= kMaxVerificationRows) {
      own_row = begin - 1;
      row = begin;
    }
    for (; row <= end; ++row) {
      const bool is_own = row == end;
      const int to = is_own ? slot : p.step.row_slots[row];
      if (!is_own && to == slot) own_row = row;
      if (to < 0 || (!is_own && to == slot)) continue;
      store_inputs<n>(p, c, is_own ? begin : begin - position, is_own ? own_row : row, p.states + to * p.slot_floats);
    }
  }

 private:
  // Writes those inputs of the state after `last` that are not before token `first`.
  template <int n>
  ZINC_DEVICE void store_inputs(const ConvParams& p, int c, int first, int last, float* to) const {
    for (int t = max(first, last + 1 - p.n_taps); t <= last; ++t) {
      const long long at = static_cast<long long>((position + t - begin) % p.n_taps) * p.n_channels + c;
      const float* from = t >= begin ? p.x + static_cast<long long>(t) * p.n_channels + c : states + at;
      float x[n];
#pragma unroll
      for (int i = 0; i < n; ++i) {
        if (c + i * kThreads < p.n_channels) x[i] = from[i * kThreads];
      }
#pragma unroll
      for (int i = 0; i < n; ++i) {
        if (c + i * kThreads < p.n_channels) to[at + i * kThreads] = x[i];
      }
    }
  }
};

// The last inputs of a channel, right-aligned: the newest last. REQUIRES: n_taps <= kTaps,
// is_exact: equal.
template <int kTaps, bool is_exact = false>
struct ConvWindow {
  float weight[kTaps], window[kTaps];

  // Inputs before token t. Those of the step are read only if t is not the first token.
  ZINC_DEVICE void load(const ConvParams& p, const ConvSeq& seq, int c, int t) {
    const int n_taps = is_exact ? kTaps : p.n_taps;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) {
      const int tap = j - (kTaps - n_taps), past = t - kTaps + j;
      weight[j] = tap >= 0 ? p.weight[c * n_taps + tap] : 0.0f;
      window[j] = 0;
      if (tap >= 1 && seq.position + past - seq.begin >= 0) {
        window[j] =
            past >= seq.begin ? p.x[static_cast<long long>(past) * p.n_channels + c] : seq.state_at(p, n_taps, c, past);
      }
    }
  }
  // The input of the next token.
  ZINC_DEVICE void push(float x) {
#pragma unroll
    for (int j = 0; j + 1 < kTaps; ++j) window[j] = window[j + 1];
    window[kTaps - 1] = x;
  }
  // The newest token's.
  ZINC_DEVICE float result() const {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kTaps; ++j) sum = fmaf(weight[j], window[j], sum);
    return sum * sigmoid(sum);
  }
};

}  // namespace zinc::simt
