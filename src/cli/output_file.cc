#include "cli/output_file.h"

#include "cli/sigint_watch.h"

namespace zinc {

Status check_not_existing(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return ok_status();
  return fail(ErrorCode::invalid_input, "{}: already exists; choose another name, or replace it with --force",
              path.string());
}

WriteCallbacks write_callbacks(ProgressBar& bar, DownloadPhase phase) {
  return {.progress =
              [&bar, phase](const WriteProgress& progress) {
                bar.show({.phase = phase, .n_bytes = progress.n_bytes, .n_done = progress.n_done});
              },
          .cancelled = SigintWatch::is_interrupted};
}

}  // namespace zinc
