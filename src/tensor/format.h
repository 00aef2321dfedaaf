// The storage format of a tensor (GGML type). A pointer to a Format IS the dtype: no enum, so no switch to forget.
// One file per format in tensor/format/ defines its record; the folder listing makes kFormats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace zinc {

inline constexpr uint32_t kNoGgufType = 0xFFFFFFFF;  // gguf_id of formats that exist only in the KV cache

struct Format {
  std::string_view name;  // "q4_k"
  uint32_t gguf_id;       // GGML type number in the file
  uint16_t block_elems;
  uint16_t block_bytes;
  // The reference every kernel is tested against. REQUIRES: blocks.size() / block_bytes * block_elems == out.size().
  void (*dequantize)(std::span<const std::byte> blocks, std::span<float> out);
  // For KV cache formats; nullptr for all others.
  void (*quantize)(std::span<const float> in, std::span<std::byte> blocks) = nullptr;
};

extern const Format* const kFormats[];             // every format, ended by nullptr
const Format* find_format(uint32_t gguf_id);       // nullptr: unknown
const Format* find_format(std::string_view name);  // nullptr: unknown

// Bytes of `n_elems` elements in one row. REQUIRES: n_elems is a multiple of block_elems.
constexpr size_t row_bytes(const Format& format, size_t n_elems) {
  return n_elems / format.block_elems * format.block_bytes;
}

extern const Format k_f32;
extern const Format k_f16;
extern const Format k_fp8;  // KV cache only

}  // namespace zinc
