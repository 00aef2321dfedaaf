// Parameters and state of a short convolution. State: the inputs of the last n_taps positions, a ring buffer indexed by
// position modulo n_taps.
const int kMaxTaps = 8;

struct Conv {
  uint64_t x, weight, out_;
  uint64_t states, slot_bytes;  // of slot 0: [taps, channels]
  int n_channels, n_taps;
};

uint64_t conv_state(Conv conv, int slot) { return conv.states + uint64_t(slot) * conv.slot_bytes; }
int state_index(Conv conv, int position, int channel) { return position % conv.n_taps * conv.n_channels + channel; }
