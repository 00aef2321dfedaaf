// Parses and validates one GGUF file (v2, v3, little-endian): every count, length, offset and size is checked against
// the real file size with overflow-safe arithmetic. Views point into `bytes`.
// Invariant of the result: keys and tensor names are unique, tensors lie inside the file and do not overlap.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "gguf/gguf_value.h"
#include "tensor/tensor_view.h"

namespace zinc {

struct GgufTensor {
  std::string_view name;
  TensorView view;  // bytes point into the mapped shard
  int shard = 0;
  uint64_t offset = 0;  // from the start of its shard's file
};

struct GgufShard {
  std::vector<std::pair<std::string_view, GgufValue>> metadata;  // in file order
  std::vector<GgufTensor> tensors;                               // in file order
};

// `name` is the file's, for messages.
Result<GgufShard> parse_gguf_shard(std::span<const std::byte> bytes, std::string_view name);

}  // namespace zinc
