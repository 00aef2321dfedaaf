// The formats that the kernels of a backend read.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace zinc::gpu {

inline constexpr int kKvBlock = 32;  // elements of KvFormat::block_bytes

// A KV cache format of a backend's kernels.
struct KvFormat {
  std::string_view name;
  size_t block_bytes;
};
// The formats of these names (files of the kernels), the largest first. `scale_bytes`: of a quant block of theirs,
// which may differ from the file's; 0: as there.
std::vector<KvFormat> kv_formats_of(std::span<const std::string_view> names, size_t scale_bytes = 0);
std::vector<std::string_view> names_of(std::span<const KvFormat> formats);  // for the backend's record

struct KernelFormats {
  std::string_view backend;                               // its name, for errors
  bool pads_last_segment = false;                         // of the panels
  bool (*has_panels)(std::string_view format) = nullptr;  // weights of other formats are dequantized; null: all have
  std::span<const KvFormat> kv_formats = {};
};

}  // namespace zinc::gpu
