// All models that can be named: the catalog, installed models, and models of other programs on this machine.
#pragma once

#include <optional>

#include "base/json.h"
#include "hub/fit.h"
#include "hub/resolve.h"

namespace zinc {

struct ModelEntry {
  std::string id;  // the name to type
  std::string name, architecture, parameters, quantization, license, status;
  std::string source, file_name, sha256;
  uint64_t n_bytes = 0;          // 0: unknown
  uint64_t memory_bytes = 0;     // for a context of kCatalogContext tokens; 0: unknown
  bool memory_is_exact = false;  // measured, not estimated from its size
  bool thinks = false;           // from the catalog
  bool is_known = false;         // in the catalog
  std::string released;          // "2025-04", from the catalog
  bool is_default = false;
  bool is_recommended = false;  // for this machine: mark_recommended()
  std::filesystem::path path;   // empty: not installed
  ModelLocation location = ModelLocation::zinc;
  Fit fit = Fit::unknown;
  std::optional<bool> fits_gpu;  // nullopt: unknown, or models do not run on a GPU
};

// By id. With MemoryCapacity::measure every installed file is opened.
std::vector<ModelEntry> list_models(const HubSettings& settings, const MemoryCapacity& memory);

// Marks the newest model of each of the three newest families of the catalog, the larger one if there are several: on a
// GPU any that fits there, else those that need at most half of the memory and use few parameters per token.
void mark_recommended(std::vector<ModelEntry>& entries, const MemoryCapacity& memory);

// One of them, or a local file, with metadata from the file. An unknown name is an error.
Result<ModelEntry> show_model(const HubSettings& settings, const std::string& name, const MemoryCapacity& memory);

// Sets the memory need and the fit of an entry: measured if it is installed, else estimated from its size.
void set_fit(ModelEntry& entry, const MemoryCapacity& memory);

json::object entry_json(const ModelEntry& entry, const HubSettings& settings);
std::string human_bytes(uint64_t n_bytes);  // "5.03 GB"; "?" for 0

}  // namespace zinc
