// The folder for files that can be rebuilt, such as compiled kernels. Empty until set: then nothing is cached.
// set_cache_folder() is called at startup, before any thread is started.
#pragma once

#include <filesystem>

namespace zinc {

void set_cache_folder(const std::filesystem::path& folder);
const std::filesystem::path& get_cache_folder();

}  // namespace zinc
