// Brings a model onto this machine: finds out which files it is, fetches them (hub/download.h, hub/package.h), looks
// into them, and writes the manifest. Processes that pull the same model at the same time take turns.
#pragma once

#include "hub/catalog.h"
#include "hub/hugging_face.h"
#include "hub/model_store.h"

namespace zinc {

// What a name stands for, before anything is asked of a server.
struct ModelReference {
  std::string id;  // empty: only known once its files are
  Source source;
  const CatalogModel* catalog = nullptr;  // nullptr: not from the catalog
};

struct Pulled {
  InstalledModel model;
  bool was_there = false;
  uint64_t n_fetched = 0;  // bytes that came over the network by our own hands
};

// REQUIRES: reference.source.kind is not ollama
Result<Pulled> pull_model(const HubSettings& settings, const ModelReference& reference, const DownloadHooks& hooks);

// The model that is meant, if it is here and untouched since it was fetched. No server is asked and no file read: one
// that was touched is read by pull_model(), with progress.
std::optional<InstalledModel> find_installed(const HubSettings& settings, const ModelReference& reference);

}  // namespace zinc
