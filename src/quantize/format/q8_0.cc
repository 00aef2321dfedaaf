#include "quantize/plain_quantizer.h"

namespace zinc {

extern const Format k_q8_0;
extern const Quantizer k_quantizer_q8_0 = {.format = k_q8_0, .quantize = quantize_plain<k_q8_0>};

}  // namespace zinc
