// Packed weight panels (shader/panel.glsl): panel sizes of each format, and functions that pack rows of the file's
// quant blocks. Formats without a panel layout are dequantized at upload.
#pragma once

#include <cstddef>
#include <string_view>

namespace zinc::vulkan {

// Packs a row's segment of up to 256 inputs (n_elems) from the file's quant blocks into a panel's segment. REQUIRES:
// the segment is zeroed.
using PackSegment = void (*)(const std::byte* from, int n_elems, std::byte* segment, int row);

struct PanelFormat {
  std::string_view name;
  int header_bytes, group_bytes;  // per row: of a segment of 256 inputs, of a quant group of 32
  int q8_block;                   // activations per scale: 32 or 256; 0: activations stay floats
  int block_elems, block_bytes;   // of a quant block in the file
  PackSegment pack;
  bool has_minima = false;                                                     // besides scales
  int segment_bytes() const { return 32 * (header_bytes + 8 * group_bytes); }  // of a panel's 32 rows
};

extern const PanelFormat kPanelFormats[];                     // terminated by an empty name
const PanelFormat* find_panel_format(std::string_view name);  // nullptr: dequantized to f16 or f32 at upload

}  // namespace zinc::vulkan
