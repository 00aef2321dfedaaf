// A layer's keys and values, as the Vulkan kernels and the hosts address them (gpu/cache.h): declared once, translated
// to GLSL by tools/shaders.
#pragma once

#include <cstdint>

namespace zinc::kernel {

struct KvLayer {
  uint64_t pages;                     // the layer's part of page 0
  uint64_t page_bytes;                // from page to page
  int head_bytes, value_begin;        // per head; offset of its values
  int kv_heads, k_dim, v_dim, group;  // group: page group
};

}  // namespace zinc::kernel
