#include "quantize/plain_quantizer.h"

namespace zinc {

extern const Format k_f16;
extern const Quantizer k_quantizer_f16 = {.format = k_f16, .quantize = quantize_plain<k_f16>};

}  // namespace zinc
