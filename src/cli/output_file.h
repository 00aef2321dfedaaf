// For commands that write a file: refuses to replace one, and shows the progress of writing.
#pragma once

#include <filesystem>

#include "base/result.h"
#include "cli/progress_bar.h"
#include "gguf/row_writer.h"

namespace zinc {

// Fails if the file exists; the error names --force.
Status check_not_existing(const std::filesystem::path& path);

// Ctrl-C cancels. REQUIRES: a SigintWatch; `bar` outlives the callbacks.
WriteCallbacks write_callbacks(ProgressBar& bar, DownloadPhase phase);

}  // namespace zinc
