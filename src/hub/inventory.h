// Every model that can be named: those of the catalog, those installed, and those other programs hold on this machine.
#pragma once

#include <optional>

#include "base/json.h"
#include "hub/fit.h"
#include "hub/resolve.h"

namespace zinc {

struct ModelEntry {
  std::string id;  // what to type
  std::string name, architecture, parameters, quantization, license, status;
  std::string source, file_name, sha256;
  uint64_t n_bytes = 0;          // 0: unknown
  uint64_t memory_bytes = 0;     // for kCatalogContext positions; 0: unknown
  bool memory_is_exact = false;  // from the file itself, not guessed from its size
  bool thinks = false;           // as the catalog says
  bool is_known = false;         // by the catalog
  std::string released;          // "2025-04", as the catalog says
  bool is_default = false;
  std::filesystem::path path;  // empty: not on this machine
  ModelPlace place = ModelPlace::zinc;
  Fit fit = Fit::unknown;
  std::optional<bool> fits_gpu;  // empty: there is no GPU that models would run on, or it is not known
};

std::vector<ModelEntry> list_models(const HubSettings& settings, const MachineMemory& machine);  // by id

// One of them, or a file of the machine, looked into for its exact need. An error if the name means nothing.
Result<ModelEntry> show_model(const HubSettings& settings, const std::string& name, const MachineMemory& machine);

json::object entry_json(const ModelEntry& entry, const HubSettings& settings);
std::string human_bytes(uint64_t n_bytes);  // "5.03 GB"; "?" for 0

}  // namespace zinc
