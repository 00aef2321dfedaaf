// From what a person typed for MODEL to the file that is opened. A name may be a path, a name of the catalog, the id of
// an installed model, or a source (hub/source.h). What is not here yet is fetched.
#pragma once

#include "hub/pull.h"

namespace zinc {

// Whether a word on its own can only mean a model, not a prompt: it names something known, an existing file (a folder
// is no model), or ends in .gguf. Asks no server.
bool names_model(const HubSettings& settings, const std::string& word);

enum class ModelPlace : uint8_t { path, zinc, hugging_face, ollama };
struct FoundModel {
  std::filesystem::path path;  // of a split model the first file
  ModelPlace place;
};

// What is on this machine under this name; nothing if it would have to be fetched. An error if the name means nothing,
// with the nearest name that does.
Result<std::optional<FoundModel>> find_model(const HubSettings& settings, const std::string& name);
// The same with what was touched since it was hashed, for those who only say what is here: its use hashes it anew.
Result<std::optional<FoundModel>> find_model_or_touched(const HubSettings& settings, const std::string& name);

// The same, fetched where it is not there. An empty name is the default model.
Result<std::filesystem::path> resolve_model(const HubSettings& settings, const std::string& name,
                                            const DownloadHooks& hooks);

// The model that is meant where none is named: the chosen one, else the catalog's default.
std::string default_model_name(const HubSettings& settings);

// What a name stands for that can be pulled: of the catalog, installed, or a source.
Result<ModelReference> refer_to_model(const HubSettings& settings, const std::string& name);

}  // namespace zinc
