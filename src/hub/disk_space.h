// Checks free disk space before a download.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace zinc {

// The error states the free space and a remedy. Succeeds if the free space is unknown.
Status check_disk_space(const std::filesystem::path& folder, uint64_t n_needed);

// Free bytes where `folder` is or will be created; 0: unknown.
uint64_t free_disk_bytes(std::filesystem::path folder);

uint64_t saturating_sum(uint64_t a, uint64_t b);  // servers may state any size

}  // namespace zinc
