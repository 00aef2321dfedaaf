#include "backend/cuda/formats.h"

namespace zinc::cuda {

const PanelFormat kPanelFormats[] = {
    {"f32", 0, 128, 0},     {"f16", 0, 64, 0},          {"bf16", 0, 64, 0},    {"q4_0", 16, 16, 32},
    {"q4_1", 32, 16, 32},   {"q5_0", 16, 20, 32},       {"q5_1", 32, 20, 32},  {"q8_0", 16, 32, 32},
    {"iq4_nl", 16, 16, 32}, {"mxfp4", 8, 16, 32, true}, {"q4_k", 16, 16, 256}, {"q5_k", 16, 20, 256},
    {"q6_k", 20, 24, 256},  {"iq4_xs", 8, 16, 256},     {"", 0, 0, 0},
};

const PanelFormat* find_panel_format(std::string_view name) {
  for (const PanelFormat* f = kPanelFormats; !f->name.empty(); ++f) {
    if (f->name == name) return f;
  }
  return nullptr;
}

}  // namespace zinc::cuda
