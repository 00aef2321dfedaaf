#include "backend/gpu/kernel_formats.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "tensor/format.h"

namespace zinc::gpu {

std::vector<KvFormat> kv_formats_of(std::span<const std::string_view> names, size_t scale_bytes) {
  std::vector<KvFormat> formats;
  for (const std::string_view name : names) {
    const Format* format = find_format(name);
    ZINC_CHECK(format && format->quantize);
    size_t bytes = row_bytes(*format, kKvBlock);
    if (scale_bytes > 0 && format->block_elems > 1) {
      ZINC_CHECK(format->block_bytes * 8 % format->block_elems == 16);  // an f16 scale, which is replaced
      bytes += scale_bytes - sizeof(uint16_t);
    }
    formats.push_back({format->name, bytes});
  }
  std::ranges::stable_sort(formats, std::greater(), &KvFormat::block_bytes);
  return formats;
}

std::vector<std::string_view> names_of(std::span<const KvFormat> formats) {
  std::vector<std::string_view> names;
  for (const KvFormat& format : formats) names.push_back(format.name);
  return names;
}

}  // namespace zinc::gpu
