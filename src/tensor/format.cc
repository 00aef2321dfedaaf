#include "tensor/format.h"

namespace zinc {

const Format* find_format(uint32_t gguf_id) {
  if (gguf_id == kNoGgufType) return nullptr;
  for (const Format* const* f = kFormats; *f; ++f) {
    if ((*f)->gguf_id == gguf_id) return *f;
  }
  return nullptr;
}

const Format* find_format(std::string_view name) {
  for (const Format* const* f = kFormats; *f; ++f) {
    if ((*f)->name == name) return *f;
  }
  return nullptr;
}

}  // namespace zinc
