#include "backend/backend.h"

namespace zinc {

Result<const BackendInfo*> find_backend(std::string_view name) {
  std::string known;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if ((*b)->name == name) return *b;
    known += (known.empty() ? "" : ", ") + std::string((*b)->name);
  }
  return fail(ErrorCode::not_found, "no backend is called '{}'; this program has: {}", name, known);
}

}  // namespace zinc
