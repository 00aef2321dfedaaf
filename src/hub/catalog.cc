#include "hub/catalog.h"

#include <algorithm>

namespace zinc {

bool equal_ignoring_case(std::string_view typed, std::string_view lower) {
  return std::ranges::equal(typed, lower, [](char t, char l) {
    return (t >= 'A' && t <= 'Z' ? static_cast<char>(t + ('a' - 'A')) : t) == l;
  });
}

const CatalogModel* find_catalog_model(std::string_view id) {
  const auto models = catalog_models();
  const auto found =
      std::ranges::find_if(models, [&](const CatalogModel& model) { return equal_ignoring_case(id, model.id); });
  return found == models.end() ? nullptr : &*found;
}

std::string_view status_name(CatalogStatus status) {
  return status == CatalogStatus::supported ? "supported" : "experimental";
}

}  // namespace zinc
