// The states of a short convolution after those rows of a sequence that have a slot, for kStateChannels channels, kThreads apart:
// the including shader defines that constant.

struct ConvSeq {
  int begin, end, first_position, slot;  // its tokens in the step, the first one's position, the slot of its state before them
};
ConvSeq conv_seq(int seq) {
  int begin = Ints(step.seq_begin).data[seq], end = Ints(step.seq_begin).data[seq + 1];
  return ConvSeq(begin, end, begin < end ? Ints(step.positions).data[begin] : 0, Ints(step.slots).data[seq]);
}

// Writes those inputs of the state after `last` that are not before token `first` to slot `to`.
void store_inputs(ConvParams conv, ConvSeq seq, int c, int first, int last, int to) {
  uint64_t from_state = conv_state(conv, seq.slot), to_state = conv_state(conv, to);
  for (int t = max(first, last + 1 - conv.n_taps); t <= last; ++t) {
    int at = state_index(conv, seq.first_position + t - seq.begin, c);
    float x[kStateChannels];
    [[unroll]] for (int i = 0; i < kStateChannels; ++i) {
      if (c + i * kThreads >= conv.n_channels) continue;
      x[i] = t >= seq.begin ? CoherentFloats(conv.x).data[t * conv.n_channels + c + i * kThreads]
                            : Floats(from_state).data[at + i * kThreads];
    }
    [[unroll]] for (int i = 0; i < kStateChannels; ++i) {
      if (c + i * kThreads < conv.n_channels) Floats(to_state).data[at + i * kThreads] = x[i];
    }
  }
}

// REQUIRES: no other invocation reads the sequence's state of these channels any more.
void store_states(ConvParams conv, ConvSeq seq, int c) {
  int own_row = seq.end - 1;  // whose state replaces the sequence's, when that was copied to the other slots
  if (seq.end - seq.begin > 1 && seq.end - seq.begin <= kMaxVerificationRows) {
    own_row = seq.begin - 1;
    for (int row = seq.begin; row < seq.end; ++row) {
      int to = Ints(step.row_slots).data[row];
      if (to == seq.slot) {
        own_row = row;
      } else if (to >= 0) {
        store_inputs(conv, seq, c, seq.begin - seq.first_position, row, to);
      }
    }
  }
  store_inputs(conv, seq, c, seq.begin, own_row, seq.slot);
}
