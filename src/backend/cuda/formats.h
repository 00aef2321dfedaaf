// Formats that have panels on the device (backend/simt/format/): the sizes the host lays them out with. The kernels
// assert the same sizes when they are compiled.
#pragma once

#include <string_view>

namespace zinc::cuda {

struct PanelFormat {
  std::string_view name;
  int header_bytes, group_bytes;  // of one row: per segment of 256 inputs, per group of 32
  int rounded_block;              // activations that share a scale: 32 or 256; 0: they stay floats
  bool has_power_scales = false;  // its scales are powers of two
};

extern const PanelFormat kPanelFormats[];                     // ended by an empty name
const PanelFormat* find_panel_format(std::string_view name);  // nullptr: decoded to f16 or f32 when uploaded

}  // namespace zinc::cuda
