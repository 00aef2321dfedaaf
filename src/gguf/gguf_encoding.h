// Appends values to a byte string as GGUF stores them (little-endian). The type on disk follows from the C++ type:
// uint32_t is u32, float is f32, std::vector<std::string> is an array of strings.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gguf/gguf_value.h"

namespace zinc {

static_assert(std::endian::native == std::endian::little, "numbers are stored as they are in memory");

template <class T>
requires(std::is_arithmetic_v<T>) void append_gguf_number(std::string& out, T value) {
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &value, sizeof(T));
  out.append(bytes.data(), bytes.size());
}

inline void append_gguf_string(std::string& out, std::string_view text) {
  append_gguf_number(out, uint64_t{text.size()});
  out.append(text);
}

// Each returns the type of the value that it appends.
inline GgufType append_gguf_value(std::string& out, bool value) {
  append_gguf_number(out, uint8_t{value});
  return GgufType::boolean;
}
inline GgufType append_gguf_value(std::string& out, std::string_view value) {
  append_gguf_string(out, value);
  return GgufType::string;
}
inline GgufType append_gguf_value(std::string& out, const std::string& value) {
  return append_gguf_value(out, std::string_view(value));
}
inline GgufType append_gguf_value(std::string& out, const char* value) {
  return append_gguf_value(out, std::string_view(value));
}

template <class T>
requires(std::integral<T> || std::floating_point<T>) GgufType append_gguf_value(std::string& out, T value) {
  append_gguf_number(out, value);
  if constexpr (std::floating_point<T>) return sizeof(T) == sizeof(float) ? GgufType::f32 : GgufType::f64;
  constexpr std::array kSigned = {GgufType::i8, GgufType::i16, GgufType::i32, GgufType::i64};
  constexpr std::array kUnsigned = {GgufType::u8, GgufType::u16, GgufType::u32, GgufType::u64};
  constexpr auto kWidth = static_cast<size_t>(std::countr_zero(sizeof(T)));
  return std::signed_integral<T> ? kSigned[kWidth] : kUnsigned[kWidth];
}

template <class T>
GgufType append_gguf_value(std::string& out, const std::vector<T>& values) {
  std::string elements;
  GgufType type = append_gguf_value(elements, T{});  // an empty array has a type too
  elements.clear();
  for (const T& value : values) type = append_gguf_value(elements, value);
  append_gguf_number(out, static_cast<uint32_t>(type));
  append_gguf_number(out, uint64_t{values.size()});
  out += elements;
  return GgufType::array;
}

// A value that was read from another file, with its type.
GgufType append_gguf_value(std::string& out, const GgufValue& value);

}  // namespace zinc
