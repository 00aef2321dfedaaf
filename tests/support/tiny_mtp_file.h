// Tiny random MTP files for the Gemma 4 models of tests/data/oracle/models.
#pragma once

#include <filesystem>
#include <string_view>

#include "gguf/gguf_file.h"
#include "tests/support/tiny_model.h"

namespace zinc {

// Four layers, three of them sliding. The target's file gives width, heads and window.
TinyModel tiny_mtp_file(const GgufFile& target);
// Its tensors. Fails with the first error that is not about a missing tensor.
Result<std::vector<TinyTensor>> find_mtp_tensors(const TinyModel& mtp_file, const GgufFile& target);
// As a file with the target's vocabulary, which exists until the process ends.
std::filesystem::path mtp_file_path(std::string_view target);  // ServedFile::name

}  // namespace zinc
