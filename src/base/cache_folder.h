// Where things are kept that can be made again, such as compiled kernels. Empty until the program says where, at its
// start and before any thread; then nothing is kept.
#pragma once

#include <filesystem>

namespace zinc {

void keep_caches_in(const std::filesystem::path& folder);
const std::filesystem::path& kept_caches_folder();

}  // namespace zinc
