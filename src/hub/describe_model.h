// Reads a model's metadata for its manifest.
#pragma once

#include "hub/catalog.h"
#include "hub/model_store.h"

namespace zinc {

// Fills in name, architecture and size. An invalid GGUF is an error. An unknown architecture or tensor
// type is only reported: a later zinc may run it. `catalog` may be nullptr.
Status describe_model(InstalledModel& model, const CatalogModel* catalog, const DownloadHooks& hooks);

}  // namespace zinc
