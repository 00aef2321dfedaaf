// Arbitrary bytes as a safetensors file: parsing succeeds or fails, and all elements of a parsed file can be read.
#include <cstdint>
#include <vector>

#include "convert/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensors = zinc::parse_safetensors(std::as_bytes(std::span(data, size)), "fuzz");
  if (!tensors.ok()) return 0;
  size_t n_bytes = 0;
  for (const zinc::SafetensorsTensor& tensor : tensors.value()) {
    n_bytes += tensor.bytes.size();
    if (!tensor.type->to_float) continue;
    std::vector<float> values(tensor.bytes.size() / tensor.type->n_bytes);
    tensor.type->to_float(tensor.bytes, values);
  }
  if (n_bytes > size) __builtin_trap();
  return 0;
}
