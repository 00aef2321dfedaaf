#include "quantize/plain_quantizer.h"

namespace zinc {

extern const Format k_bf16;
extern const Quantizer k_quantizer_bf16 = {.format = k_bf16, .quantize = quantize_plain<k_bf16>};

}  // namespace zinc
