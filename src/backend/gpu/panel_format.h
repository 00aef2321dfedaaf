// Weights in packed panels: 32 interleaved rows, in segments of 256 inputs of 8 quant groups each. Per format the sizes
// of a panel, and the function that packs rows of the file's quant blocks on the host (a backend may also pack on the
// device). Formats without a panel layout are dequantized at upload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "backend/gpu/params/limits.h"

namespace zinc::gpu {

using namespace kernel;

// Packs a row's segment of up to 256 inputs (n_elems) from the file's quant blocks into a panel's segment. REQUIRES:
// the segment is zeroed.
using PackSegment = void (*)(const std::byte* from, int n_elems, std::byte* segment, int row);

struct PanelFormat {
  std::string_view name;
  int header_bytes, group_bytes;  // per row: of a segment of 256 inputs, of a quant group of 32
  int q8_block;                   // activations per scale: 32 or 256; 0: activations stay floats
  int block_elems, block_bytes;   // of a quant block in the file
  PackSegment pack;
  bool has_minima = false;        // besides scales
  bool has_power_scales = false;  // weight scales are powers of two
  // Of a panel's 32 rows; the last segment of a row may have fewer groups.
  int segment_bytes(int n_groups = kSegmentGroups) const {
    return kPanelRows * (header_bytes + n_groups * group_bytes);
  }
};

extern const PanelFormat* const kPanelFormats[];              // of format/*.cc, terminated by nullptr
const PanelFormat* find_panel_format(std::string_view name);  // nullptr: dequantized to f16 or f32 at upload

// A matrix in panels, or one per expert. Whether the last segment of a row is shortened to its groups or padded to a
// whole segment depends on the backend's kernels.
struct PanelLayout {
  int n_in, n_out;
  int n_segments, n_last_groups;  // n_last_groups: quant groups stored of the last segment
  int64_t panel_bytes, matrix_bytes;
};
PanelLayout panel_layout(const PanelFormat& format, int64_t n_out, int64_t n_in, bool pads_last_segment);

}  // namespace zinc::gpu
