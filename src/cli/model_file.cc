#include "cli/model_file.h"

#include <fmt/core.h>

#include "base/deferred_sigint.h"
#include "cli/hub_settings.h"
#include "cli/model_memory.h"
#include "cli/output.h"
#include "cli/progress_bar.h"
#include "hub/resolve.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

// A plain file needs no settings: it works without a home folder.
bool is_plain_path(const std::string& name) {
  std::error_code unreadable;
  return !has_source_prefix(name) && (name.ends_with(".gguf") || fs::is_regular_file(fs::path(name), unreadable));
}

}  // namespace

Result<Pulled> pull_with_progress(const HubSettings& settings, const ModelReference& reference,
                                  const IsCancelled& is_cancelled) {
  std::optional<DeferredSigint> deferred_sigint;
  if (!is_cancelled) deferred_sigint.emplace();
  Result<Pulled> pulled = [&] {
    ProgressBar progress;
    const DownloadHooks hooks{.progress = [&](const DownloadProgress& p) { progress.show(p); },
                              .on_message = [&](std::string_view line) { progress.print_line(line); },
                              .cancelled = is_cancelled ? is_cancelled : sigint_pending};
    HubSettings with_memory = settings;
    with_memory.memory_bytes = model_memory().n_bytes;
    return pull_model(with_memory, reference, hooks);
  }();
  if (pulled.ok() || pulled.error().code != ErrorCode::cancelled) return pulled;
  const Error cancelled = fail(ErrorCode::cancelled, "{}; repeat the command to resume", pulled.error().message);
  // The pending signal ends the program as soon as it is unblocked: print before that.
  if (deferred_sigint) print_stderr("zinc: " + cancelled.message);
  return cancelled;
}

Result<std::optional<fs::path>> local_model_file(const std::string& name) {
  if (is_plain_path(name)) return std::optional(fs::path(name));
  ZINC_TRY(settings, hub_settings());
  const std::string wanted = name.empty() ? default_model_name(settings) : name;
  ZINC_TRY(found, find_model(settings, wanted));
  if (found) return std::optional(found->path);
  ZINC_TRY(reference, make_model_reference(settings, wanted));  // an unknown name is an error
  return std::optional<fs::path>();
}

Result<fs::path> model_file(const std::string& name, const IsCancelled& is_cancelled) {
  ZINC_TRY(path, local_model_file(name));
  if (path) return *path;
  ZINC_TRY(settings, hub_settings());
  ZINC_TRY(reference, make_model_reference(settings, name.empty() ? default_model_name(settings) : name));
  ZINC_TRY(pulled, pull_with_progress(settings, reference, is_cancelled));
  return pulled.model.path();
}

bool is_model_name(const std::string& word) {
  if (is_plain_path(word)) return true;
  const Result<HubSettings> settings = hub_settings();
  return settings.ok() && names_model(settings.value(), word);
}

}  // namespace zinc
