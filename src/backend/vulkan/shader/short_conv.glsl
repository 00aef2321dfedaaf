// Parameters and state of a short convolution. State: the inputs of the last n_taps positions, a ring buffer indexed by
// position modulo n_taps.
#include "backend/vulkan/params/recurrent.h"

uint64_t conv_state(ConvParams conv, int slot) { return conv.states + uint64_t(slot) * conv.slot_bytes; }
int state_index(ConvParams conv, int position, int channel) { return position % conv.n_taps * conv.n_channels + channel; }
