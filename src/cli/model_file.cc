#include "cli/model_file.h"

#include "base/held_interrupt.h"
#include "cli/fetch_progress.h"
#include "cli/hub_settings.h"
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

Result<Pulled> pull_with_progress(const HubSettings& settings, const ModelReference& reference) {
  const HeldInterrupt until_tidied_up;
  Result<Pulled> pulled = [&] {
    FetchProgress progress;
    const DownloadHooks hooks{.progress = [&](const DownloadProgress& p) { progress.show(p); },
                              .say = [&](std::string_view line) { progress.say(line); },
                              .cancelled = interrupt_waits};
    return pull_model(settings, reference, hooks);
  }();
  // The signal takes its course as soon as it is held no longer, so this is the last word.
  if (!pulled.ok() && pulled.error().code == ErrorCode::cancelled) {
    note(fmt::format("zinc: {}; the same command goes on from there", pulled.error().message));
  }
  return pulled;
}

Result<fs::path> model_file(const std::string& name) {
  if (is_plain_path(name)) return fs::path(name);
  ZINC_TRY(settings, hub_settings());
  const std::string wanted = name.empty() ? default_model_name(settings) : name;
  ZINC_TRY(found, find_model(settings, wanted));
  if (found) return found->path;
  ZINC_TRY(reference, refer_to_model(settings, wanted));
  ZINC_TRY(pulled, pull_with_progress(settings, reference));
  return pulled.model.path();
}

bool is_model_name(const std::string& word) {
  if (is_plain_path(word)) return true;
  const Result<HubSettings> settings = hub_settings();
  return settings.ok() && names_model(settings.value(), word);
}

}  // namespace zinc
