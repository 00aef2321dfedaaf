#include "backend/gpu/panel_format.h"

#include "base/ceil_div.h"

namespace zinc::gpu {

const PanelFormat* find_panel_format(std::string_view name) {
  for (const PanelFormat* const* f = kPanelFormats; *f; ++f) {
    if ((*f)->name == name) return *f;
  }
  return nullptr;
}

PanelLayout panel_layout(const PanelFormat& format, int64_t n_out, int64_t n_in, bool pads_last_segment) {
  const int64_t n_segments = ceil_div(n_in, kSegmentElems);
  const int64_t n_last_inputs = n_in - (n_segments - 1) * kSegmentElems;
  const int n_last_groups = pads_last_segment ? kSegmentGroups : static_cast<int>(ceil_div(n_last_inputs, kGroupElems));
  const int64_t panel_bytes = (n_segments - 1) * format.segment_bytes() + format.segment_bytes(n_last_groups);
  return {.n_in = static_cast<int>(n_in),
          .n_out = static_cast<int>(n_out),
          .n_segments = static_cast<int>(n_segments),
          .n_last_groups = n_last_groups,
          .panel_bytes = panel_bytes,
          .matrix_bytes = panel_bytes * ceil_div(n_out, kPanelRows)};
}

}  // namespace zinc::gpu
