// How weights lie in memory. A pointer to a Format IS the dtype: no enum, so no switch to forget.
// One file per format in tensor/format/ defines its record; the folder listing makes kFormats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace zinc {

inline constexpr uint32_t kNotInFiles = 0xFFFFFFFF;  // the gguf_id of formats that only caches have

struct Format {
  std::string_view name;  // "q4_k"
  uint32_t gguf_id;       // type number on disk
  uint16_t block_elems;
  uint16_t block_bytes;
  // The truth every kernel is tested against. REQUIRES: blocks.size() / block_bytes * block_elems == out.size().
  void (*decode)(std::span<const std::byte> blocks, std::span<float> out);
  // Rounds floats into blocks, for formats a cache may be kept in; nullptr where none is needed.
  void (*encode)(std::span<const float> in, std::span<std::byte> blocks) = nullptr;
};

extern const Format* const kFormats[];             // every format, ended by nullptr
const Format* find_format(uint32_t gguf_id);       // nullptr: unknown, or in no file
const Format* find_format(std::string_view name);  // nullptr: unknown

// Bytes of `n_elems` elements in one row. REQUIRES: n_elems is a multiple of block_elems.
constexpr size_t row_bytes(const Format& format, size_t n_elems) {
  return n_elems / format.block_elems * format.block_bytes;
}

extern const Format k_f32;
extern const Format k_f16;
extern const Format k_fp8;  // only in caches

}  // namespace zinc
