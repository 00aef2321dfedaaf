// One metadata value of a GGUF file. Strings and arrays are views into the mapped file: the GgufFile must outlive them.
// Arrays stay encoded (a vocabulary has 256k strings); they were validated when the file was opened, so decoding
// cannot fail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace zinc {

// Metadata value types, with their numbers in the file.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
constexpr uint32_t kGgufTypes = 13;

std::string_view to_string(GgufType type);  // "u8", "bool", "string"
size_t fixed_bytes(GgufType type);          // 0: strings and arrays, whose size varies

struct GgufValue;

class GgufArray {
 public:
  // REQUIRES: `bytes` holds exactly `size` encoded elements.
  GgufArray(GgufType type, uint64_t size, std::span<const std::byte> bytes) : type_(type), size_(size), bytes_(bytes) {}

  GgufType type() const { return type_; }  // of the elements
  uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return bytes_; }  // the encoded elements
  std::vector<GgufValue> first(uint64_t n_elems) const;        // the first n_elems, or all if there are fewer

  // Calls visit(const GgufValue&) for the elements in order; visit returns false to stop.
  template <class Visit>
  void for_each(Visit visit) const;

 private:
  GgufType type_;
  uint64_t size_;
  std::span<const std::byte> bytes_;
};

// Integers of every width become int64_t (u64: uint64_t), floats become double.
struct GgufValue {
  GgufType type;  // on disk
  std::variant<int64_t, uint64_t, double, bool, std::string_view, GgufArray> data;

  std::string type_name() const;  // "u32", "array of 12 string"
};

// Decodes the validated value of `type` at the front of `bytes` and advances `bytes` past it.
GgufValue read_gguf_value(GgufType type, std::span<const std::byte>& bytes);
// The validated value of `type` that fills `bytes`; does not walk over an array's elements.
GgufValue make_gguf_value(GgufType type, std::span<const std::byte> bytes);

template <class Visit>
void GgufArray::for_each(Visit visit) const {
  std::span<const std::byte> rest = bytes_;
  for (uint64_t i = 0; i < size_; ++i) {
    if (!visit(read_gguf_value(type_, rest))) return;
  }
}

}  // namespace zinc
