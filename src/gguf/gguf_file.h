// A mapped and fully checked GGUF (v2, v3), all shards. Immutable; share freely between threads.
// open() proves every offset, size and count against the real file, so nothing later can read outside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "tensor/tensor_view.h"

namespace zinc {

// A metadata array stays in the file; elements are decoded when asked for. Strings are found by an index made at open.
struct GgufValue;
using GgufArray = std::vector<GgufValue>;

// A metadata value. Integers of every width become int64 or uint64 (u64 only), floats become double.
struct GgufValue {
  std::variant<int64_t, uint64_t, double, bool, std::string_view, GgufArray> data;
};

struct GgufTensor {
  std::string_view name;
  TensorView view;  // bytes point into the mapped shard
  int shard = 0;
  uint64_t offset = 0;  // from the start of its shard's file
};

class GgufFile {
 public:
  static Result<GgufFile> open(const std::filesystem::path& first_shard);
  // For tests and fuzzers: one shard already in memory, which must outlive the GgufFile.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const;                                              // path of the first shard, for messages
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const;  // in file order
  const std::vector<GgufTensor>& tensors() const;                               // in file order

  const GgufValue* find(std::string_view key) const;  // nullptr: absent
  // T: int64_t (checked range), double, bool, std::string_view, std::vector<int64_t>, std::vector<double>,
  // std::vector<std::string_view>. The error names file, key, wanted and found type.
  template <class T>
  Result<T> get(std::string_view key) const;
  template <class T>
  T get_or(std::string_view key, T fallback) const;            // fallback if absent OR of another type
  Result<TensorView> tensor(std::string_view name) const;      // error names file and tensor
  const GgufTensor* find_tensor(std::string_view name) const;  // nullptr: absent
};

}  // namespace zinc
