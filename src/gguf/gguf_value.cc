#include "gguf/gguf_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace zinc {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read in place");

struct TypeRow {
  std::string_view name;
  size_t bytes;
};
constexpr std::array<TypeRow, kGgufTypes> kTypeRows = {{{"u8", 1},
                                                        {"i8", 1},
                                                        {"u16", 2},
                                                        {"i16", 2},
                                                        {"u32", 4},
                                                        {"i32", 4},
                                                        {"f32", 4},
                                                        {"bool", 1},
                                                        {"string", 0},
                                                        {"array", 0},
                                                        {"u64", 8},
                                                        {"i64", 8},
                                                        {"f64", 8}}};

const TypeRow& row(GgufType type) { return kTypeRows[static_cast<size_t>(type)]; }

template <class T>
T take(std::span<const std::byte>& bytes) {
  ZINC_CHECK(bytes.size() >= sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return value;
}

std::span<const std::byte> take_bytes(std::span<const std::byte>& bytes, uint64_t n) {
  ZINC_CHECK(bytes.size() >= n);
  const std::span<const std::byte> front = bytes.first(n);
  bytes = bytes.subspan(n);
  return front;
}

std::string_view take_string(std::span<const std::byte>& bytes) {
  const uint64_t n = take<uint64_t>(bytes);
  return {reinterpret_cast<const char*>(take_bytes(bytes, n).data()), n};
}

// The depth of nesting was bounded when the file was checked.
GgufArray take_array(std::span<const std::byte>& bytes) {
  const GgufType type{take<uint32_t>(bytes)};
  const uint64_t size = take<uint64_t>(bytes);
  if (const size_t each = fixed_bytes(type); each != 0) return {type, size, take_bytes(bytes, size * each)};
  const std::span<const std::byte> begin = bytes;
  for (uint64_t i = 0; i < size; ++i) take_gguf_value(type, bytes);
  return {type, size, begin.first(begin.size() - bytes.size())};
}

}  // namespace

std::string_view to_string(GgufType type) { return row(type).name; }
size_t fixed_bytes(GgufType type) { return row(type).bytes; }

GgufValue take_gguf_value(GgufType type, std::span<const std::byte>& bytes) {
  switch (type) {
    case GgufType::u8:
      return {type, int64_t{take<uint8_t>(bytes)}};
    case GgufType::i8:
      return {type, int64_t{take<int8_t>(bytes)}};
    case GgufType::u16:
      return {type, int64_t{take<uint16_t>(bytes)}};
    case GgufType::i16:
      return {type, int64_t{take<int16_t>(bytes)}};
    case GgufType::u32:
      return {type, int64_t{take<uint32_t>(bytes)}};
    case GgufType::i32:
      return {type, int64_t{take<int32_t>(bytes)}};
    case GgufType::u64:
      return {type, take<uint64_t>(bytes)};
    case GgufType::i64:
      return {type, take<int64_t>(bytes)};
    case GgufType::f32:
      return {type, double{take<float>(bytes)}};
    case GgufType::f64:
      return {type, take<double>(bytes)};
    case GgufType::boolean:
      return {type, take<uint8_t>(bytes) != 0};
    case GgufType::string:
      return {type, take_string(bytes)};
    case GgufType::array:
      return {type, take_array(bytes)};
  }
  const bool type_was_checked_when_the_file_was_read = false;
  ZINC_CHECK(type_was_checked_when_the_file_was_read);
  return {type, false};
}

GgufValue gguf_value(GgufType type, std::span<const std::byte> bytes) {
  if (type != GgufType::array) return take_gguf_value(type, bytes);
  const GgufType element_type{take<uint32_t>(bytes)};
  const uint64_t size = take<uint64_t>(bytes);
  return {type, GgufArray(element_type, size, bytes)};
}

std::vector<GgufValue> GgufArray::first(uint64_t n_elems) const {
  std::vector<GgufValue> out;
  n_elems = std::min(n_elems, size_);
  out.reserve(n_elems);
  for_each([&](const GgufValue& value) {
    if (out.size() < n_elems) out.push_back(value);
    return out.size() < n_elems;
  });
  return out;
}

std::string GgufValue::type_name() const {
  const GgufArray* array = std::get_if<GgufArray>(&data);
  if (!array) return std::string(to_string(type));
  return fmt::format("array of {} {}", array->size(), to_string(array->type()));
}

}  // namespace zinc
