#include "quantize/quantizer.h"

namespace zinc {

const Quantizer* find_quantizer(const Format& format) {
  for (const Quantizer* const* q = kQuantizers; *q != nullptr; ++q) {
    if (&(*q)->format == &format) return *q;
  }
  return nullptr;
}

}  // namespace zinc
