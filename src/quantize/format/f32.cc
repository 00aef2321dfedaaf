#include "quantize/plain_quantizer.h"

namespace zinc {

extern const Format k_f32;
extern const Quantizer k_quantizer_f32 = {.format = k_f32, .quantize = quantize_plain<k_f32>};

}  // namespace zinc
