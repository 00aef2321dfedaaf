#include "cli/model_file.h"

#include <fmt/core.h>

#include "base/held_interrupt.h"
#include "cli/fetch_progress.h"
#include "cli/hub_settings.h"
#include "cli/model_memory.h"
#include "cli/output.h"
#include "hub/resolve.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

// Needs nothing but the file: a machine without a home folder runs it too.
bool is_plain_path(const std::string& name) {
  std::error_code unreadable;
  return !has_source_prefix(name) && (name.ends_with(".gguf") || fs::is_regular_file(fs::path(name), unreadable));
}

}  // namespace

Result<Pulled> pull_with_progress(const HubSettings& settings, const ModelReference& reference,
                                  const IsCancelled& is_cancelled) {
  std::optional<HeldInterrupt> until_tidied_up;
  if (!is_cancelled) until_tidied_up.emplace();
  Result<Pulled> pulled = [&] {
    FetchProgress progress;
    const DownloadHooks hooks{.progress = [&](const DownloadProgress& p) { progress.show(p); },
                              .say = [&](std::string_view line) { progress.say(line); },
                              .cancelled = is_cancelled ? is_cancelled : interrupt_waits};
    HubSettings with_memory = settings;
    with_memory.memory_bytes = model_memory().n_bytes;
    return pull_model(with_memory, reference, hooks);
  }();
  if (pulled.ok() || pulled.error().code != ErrorCode::cancelled) return pulled;
  const Error stopped = fail(ErrorCode::cancelled, "{}; the same command goes on from there", pulled.error().message);
  // The signal takes its course as soon as it is held no longer, so this is the last word.
  if (until_tidied_up) note("zinc: " + stopped.message);
  return stopped;
}

Result<std::optional<fs::path>> model_file_here(const std::string& name) {
  if (is_plain_path(name)) return std::optional(fs::path(name));
  ZINC_TRY(settings, hub_settings());
  const std::string wanted = name.empty() ? default_model_name(settings) : name;
  ZINC_TRY(found, find_model(settings, wanted));
  if (found) return std::optional(found->path);
  ZINC_TRY(reference, refer_to_model(settings, wanted));  // an unknown name is an error
  return std::optional<fs::path>();
}

Result<fs::path> model_file(const std::string& name, const IsCancelled& is_cancelled) {
  ZINC_TRY(here, model_file_here(name));
  if (here) return *here;
  ZINC_TRY(settings, hub_settings());
  ZINC_TRY(reference, refer_to_model(settings, name.empty() ? default_model_name(settings) : name));
  ZINC_TRY(pulled, pull_with_progress(settings, reference, is_cancelled));
  return pulled.model.path();
}

bool is_model_name(const std::string& word) {
  if (is_plain_path(word)) return true;
  const Result<HubSettings> settings = hub_settings();
  return settings.ok() && names_model(settings.value(), word);
}

}  // namespace zinc
