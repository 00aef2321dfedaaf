#include "tests/support/default_model.h"

#include "base/result.h"
#include "cli/hub_settings.h"
#include "hub/catalog.h"

namespace zinc {

std::filesystem::path default_model_path() {
  const CatalogModel& model = *find_catalog_model(kDefaultModelId);
  const Result<std::filesystem::path> cache = cache_folder();
  return cache.ok() ? cache.value() / "models" / model.id / model.file.name : std::filesystem::path();
}

}  // namespace zinc
