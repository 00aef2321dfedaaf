// Parses and validates one safetensors file: a length of 64 bits, a JSON header of that length, the data. Every length,
// shape and offset is checked against the real file with overflow-safe arithmetic. Views point into `bytes`.
// Invariant of the result: names are unique, and the tensors fill the data without overlaps and holes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "convert/element_type.h"

namespace zinc {

struct SafetensorsTensor {
  std::string name;
  const ElementType* type = nullptr;
  std::vector<int64_t> shape;  // outermost first; empty: one element
  std::span<const std::byte> bytes;
};

std::string shape_text(std::span<const int64_t> shape);  // "[32,64]"

// In the order of their data. `name` is the file's, for messages.
Result<std::vector<SafetensorsTensor>> parse_safetensors(std::span<const std::byte> bytes, std::string_view name);

}  // namespace zinc
