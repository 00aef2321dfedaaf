// Whether there is room for what is to be fetched, asked before anything is.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"

namespace zinc {

// An error says how much is free and what to do. Where the system cannot tell, there is room.
Status check_disk_space(const std::filesystem::path& folder, uint64_t n_needed);

uint64_t saturating_sum(uint64_t a, uint64_t b);  // of sizes that servers state

}  // namespace zinc
