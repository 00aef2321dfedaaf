// Identifies large files by their sizes, first megabytes and samples of the rest: reads a few megabytes of each.
#pragma once

#include <span>
#include <string>

#include "base/sha256.h"

namespace zinc {

Status add_file_samples(std::span<const std::string> paths, Sha256& hash);
Result<Sha256::Digest> fingerprint_of_files(std::span<const std::string> paths);

}  // namespace zinc
