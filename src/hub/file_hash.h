// Whether a file that lies here is the one that is meant, by its SHA-256. Reading tens of gigabytes takes minutes, so
// it is said, shown as progress, and can be interrupted.
#pragma once

#include "hub/download.h"

namespace zinc {

// False without reading it if it is no regular file, or not of `n_bytes` (0: of any size). An error only if it was
// interrupted.
Result<bool> has_sha256(const std::filesystem::path& file, uint64_t n_bytes, std::string_view sha256,
                        const DownloadHooks& hooks);

}  // namespace zinc
