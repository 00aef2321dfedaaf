#include "backend/backend.h"

namespace zinc {

std::string backend_names() {
  std::string names;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    names += (names.empty() ? "" : ", ") + std::string((*b)->name);
  }
  return names;
}

const BackendInfo& default_backend() {
  const BackendInfo* best = nullptr;
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if ((!best || (*b)->rank > best->rank) && (*b)->usable()) best = *b;
  }
  ZINC_CHECK(best != nullptr);  // the reference backend always is
  return *best;
}

Result<const BackendInfo*> find_backend(std::string_view name) {
  for (const BackendInfo* const* b = kBackends; *b; ++b) {
    if ((*b)->name == name) return *b;
  }
  return fail(ErrorCode::not_found, "no backend is called '{}'; this program has: {}", name, backend_names());
}

}  // namespace zinc
