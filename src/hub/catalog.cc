#include "hub/catalog.h"

#include <algorithm>

namespace zinc {

const CatalogModel* find_catalog_model(std::string_view id) {
  const auto equal_ignoring_case = [](char typed, char known) {
    return (typed >= 'A' && typed <= 'Z' ? static_cast<char>(typed + 32) : typed) == known;
  };
  const auto models = catalog_models();
  const auto found = std::ranges::find_if(
      models, [&](const CatalogModel& model) { return std::ranges::equal(id, model.id, equal_ignoring_case); });
  return found == models.end() ? nullptr : &*found;
}

std::string_view status_name(CatalogStatus status) {
  return status == CatalogStatus::supported ? "supported" : "experimental";
}

}  // namespace zinc
