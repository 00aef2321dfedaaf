// Verifies an existing file by its SHA-256. Tens of gigabytes take minutes: it reports progress and can be interrupted.
#pragma once

#include "hub/download.h"

namespace zinc {

// False without reading it if it is not a regular file of `n_bytes` (0: any size). An error only if interrupted.
Result<bool> has_sha256(const std::filesystem::path& file, uint64_t n_bytes, std::string_view sha256,
                        const DownloadHooks& hooks);

}  // namespace zinc
