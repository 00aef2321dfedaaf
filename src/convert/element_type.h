// Types of the elements of a safetensors file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tensor/format.h"

namespace zinc {

struct ElementType {
  std::string_view name;  // as in the file: "BF16"
  size_t n_bytes;
  // nullptr: not a type of weights. REQUIRES: bytes.size() == n_bytes * out.size().
  void (*to_float)(std::span<const std::byte> bytes, std::span<float> out) = nullptr;
  const Format* format = nullptr;  // the tensor format with the same bytes, if there is one
  bool is_fp8 = false;             // has scales in another tensor
};

const ElementType* find_element_type(std::string_view name);  // nullptr: unknown
std::string element_type_names();                             // for messages

}  // namespace zinc
