// Resolves a MODEL name to a file. A name may be a path, a catalog name, the id of an installed model, or a source
// (hub/source.h). Missing models are downloaded.
#pragma once

#include "hub/pull.h"

namespace zinc {

// Whether a single word is a model rather than a prompt: a known name or its unambiguous beginning, an existing file
// (not a folder), or a name ending in .gguf. Asks no server.
bool names_model(const HubSettings& settings, const std::string& word);
// Whether it looks like the name of a model that zinc does not know, or of several.
bool resembles_model(const HubSettings& settings, const std::string& word);
// The id of the catalog or of an installed model that `typed` means (hub/model_names.h); else `typed` itself.
std::string full_model_name(const HubSettings& settings, const std::string& typed);

enum class ModelLocation : uint8_t { path, zinc, hugging_face, ollama };
struct FoundModel {
  std::filesystem::path path;  // for a split model, the first file
  ModelLocation location;
};

// The local file of this name; nullopt: must be downloaded. An unknown name is an error that suggests the nearest one.
Result<std::optional<FoundModel>> find_model(const HubSettings& settings, const std::string& name);
// The same, including files modified since they were hashed, for listings: using the model verifies it again.
Result<std::optional<FoundModel>> find_model_or_modified(const HubSettings& settings, const std::string& name);

// Like find_model(), but downloads a missing model. An empty name is the default model.
Result<std::filesystem::path> resolve_model(const HubSettings& settings, const std::string& name,
                                            const DownloadHooks& hooks);

// The user's default model, else the catalog's.
std::string default_model_name(const HubSettings& settings);

// The reference of a name that can be pulled: from the catalog, installed, or a source.
Result<ModelReference> make_model_reference(const HubSettings& settings, const std::string& name);

}  // namespace zinc
