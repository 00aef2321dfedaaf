// Installs a model: determines its files, downloads them (hub/download.h, hub/package.h), reads their metadata, and
// writes the manifest. A lock serializes processes that pull the same model.
#pragma once

#include "hub/catalog.h"
#include "hub/hugging_face.h"
#include "hub/model_store.h"

namespace zinc {

// A parsed model name, before any server is asked.
struct ModelReference {
  std::string id;  // empty: derived from the file name later
  Source source;
  const CatalogModel* catalog = nullptr;  // nullptr: not from the catalog
};

struct Pulled {
  InstalledModel model;
  bool already_installed = false;  // or found in huggingface_hub's cache: nothing was downloaded
  uint64_t n_fetched = 0;          // bytes downloaded, not counting pip
};

// REQUIRES: reference.source.kind is not ollama
Result<Pulled> pull_model(const HubSettings& settings, const ModelReference& reference, const DownloadHooks& hooks);

// The installed model, if its files are unmodified since the download. Asks no server and reads no file: pull_model()
// verifies modified files, with progress.
std::optional<InstalledModel> find_installed(const HubSettings& settings, const ModelReference& reference);

}  // namespace zinc
