// The binary format that llama-imatrix wrote before it used GGUF (imatrix.dat): per weight the mean of x^2, times the
// number of windows. It has no counts per expert.
#pragma once

#include <span>
#include <string_view>

#include "quantize/importance_matrix.h"

namespace zinc {

// `name` is the file's, for messages.
Result<ImportanceMatrix> parse_legacy_importance(std::span<const std::byte> bytes, std::string_view name);

}  // namespace zinc
