// Weights as kernels read them (shader/panel.glsl): sizes of each format's panels, and rows of the file's blocks
// written into them. Formats without panels are decoded when uploaded.
#pragma once

#include <cstddef>
#include <string_view>

namespace zinc::vulkan {

// A row's segment of 256 inputs from the file's blocks (n_elems of them there) into its places of a panel's segment,
// which is zero before.
using PackSegment = void (*)(const std::byte* from, int n_elems, std::byte* segment, int row);

struct PanelFormat {
  std::string_view name;
  int header_bytes, group_bytes;  // of one row: per segment of 256 inputs, per group of 32
  int rounded_block;              // activations that share a scale: 32 or 256; 0: they stay floats
  int block_elems, block_bytes;   // as in the file
  PackSegment pack;
  bool has_minima = false;                                                     // beside its scales
  int segment_bytes() const { return 32 * (header_bytes + 8 * group_bytes); }  // of 32 rows
};

extern const PanelFormat kPanelFormats[];                     // ended by an empty name
const PanelFormat* find_panel_format(std::string_view name);  // nullptr: decoded to f16 or f32 when uploaded

}  // namespace zinc::vulkan
