// The binary format that llama-imatrix wrote before it used GGUF (imatrix.dat): per weight the mean of x^2, times the
// number of windows. It has no counts per expert.
#pragma once

#include <filesystem>

#include "quantize/importance_matrix.h"

namespace zinc {

Result<bool> is_legacy_importance(const std::filesystem::path& path);  // an existing file that is not GGUF
Result<ImportanceMatrix> read_legacy_importance(const std::filesystem::path& path);

}  // namespace zinc
