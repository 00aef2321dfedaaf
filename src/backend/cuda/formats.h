// Weight formats with packed panels on the device (backend/simt/format/), and the sizes of their panels. The kernels
// check the sizes with static_assert.
#pragma once

#include <string_view>

namespace zinc::cuda {

struct PanelFormat {
  std::string_view name;
  int header_bytes, group_bytes;  // of one row: per segment of 256 inputs, per group of 32
  int q8_block;                   // activations per scale: 32 or 256; 0: float activations
  bool has_power_scales = false;  // weight scales are powers of two
};

extern const PanelFormat kPanelFormats[];                     // terminated by an empty name
const PanelFormat* find_panel_format(std::string_view name);  // nullptr: dequantized to f16 or f32 on upload

}  // namespace zinc::cuda
