// What a model's files say about themselves, for its manifest.
#pragma once

#include "hub/catalog.h"
#include "hub/model_store.h"

namespace zinc {

// Fills in name, architecture, size and memory need. What is no GGUF is an error. A file of an architecture or with
// tensors of a type we do not know is none, and said: a later zinc may run it. `catalog` may be nullptr.
Status describe_model(InstalledModel& model, const CatalogModel* catalog, const DownloadHooks& hooks);

}  // namespace zinc
