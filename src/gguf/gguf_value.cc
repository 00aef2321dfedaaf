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
T read(std::span<const std::byte>& bytes) {
  ZINC_CHECK(bytes.size() >= sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes = bytes.subspan(sizeof(T));
  return value;
}

std::span<const std::byte> read_bytes(std::span<const std::byte>& bytes, uint64_t n) {
  ZINC_CHECK(bytes.size() >= n);
  const std::span<const std::byte> front = bytes.first(n);
  bytes = bytes.subspan(n);
  return front;
}

std::string_view read_string(std::span<const std::byte>& bytes) {
  const uint64_t n = read<uint64_t>(bytes);
  return {reinterpret_cast<const char*>(read_bytes(bytes, n).data()), n};
}

// The parser has limited the nesting depth.
GgufArray read_array(std::span<const std::byte>& bytes) {
  const GgufType type{read<uint32_t>(bytes)};
  const uint64_t size = read<uint64_t>(bytes);
  if (const size_t element_bytes = fixed_bytes(type); element_bytes != 0)
    return {type, size, read_bytes(bytes, size * element_bytes)};
  const std::span<const std::byte> begin = bytes;
  for (uint64_t i = 0; i < size; ++i) read_gguf_value(type, bytes);
  return {type, size, begin.first(begin.size() - bytes.size())};
}

}  // namespace

std::string_view to_string(GgufType type) { return row(type).name; }
size_t fixed_bytes(GgufType type) { return row(type).bytes; }

GgufValue read_gguf_value(GgufType type, std::span<const std::byte>& bytes) {
  switch (type) {
    case GgufType::u8:
      return {type, int64_t{read<uint8_t>(bytes)}};
    case GgufType::i8:
      return {type, int64_t{read<int8_t>(bytes)}};
    case GgufType::u16:
      return {type, int64_t{read<uint16_t>(bytes)}};
    case GgufType::i16:
      return {type, int64_t{read<int16_t>(bytes)}};
    case GgufType::u32:
      return {type, int64_t{read<uint32_t>(bytes)}};
    case GgufType::i32:
      return {type, int64_t{read<int32_t>(bytes)}};
    case GgufType::u64:
      return {type, read<uint64_t>(bytes)};
    case GgufType::i64:
      return {type, read<int64_t>(bytes)};
    case GgufType::f32:
      return {type, double{read<float>(bytes)}};
    case GgufType::f64:
      return {type, read<double>(bytes)};
    case GgufType::boolean:
      return {type, read<uint8_t>(bytes) != 0};
    case GgufType::string:
      return {type, read_string(bytes)};
    case GgufType::array:
      return {type, read_array(bytes)};
  }
  const bool type_was_validated_by_the_parser = false;
  ZINC_CHECK(type_was_validated_by_the_parser);
  return {type, false};
}

GgufValue make_gguf_value(GgufType type, std::span<const std::byte> bytes) {
  if (type != GgufType::array) return read_gguf_value(type, bytes);
  const GgufType element_type{read<uint32_t>(bytes)};
  const uint64_t size = read<uint64_t>(bytes);
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
