// Arbitrary bytes as a tokenizer.model: parsing succeeds or fails, and no text is longer than the file.
#include <cstdint>

#include "convert/sentencepiece_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = zinc::parse_sentencepiece_model(std::as_bytes(std::span(data, size)), "fuzz");
  if (!model.ok()) return 0;
  size_t n_bytes = 0;
  for (const auto& piece : model.value().pieces) n_bytes += piece.text.size();
  if (n_bytes > size || model.value().pieces.empty()) __builtin_trap();
  return 0;
}
