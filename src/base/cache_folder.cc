#include "base/cache_folder.h"

namespace zinc {
namespace {

std::filesystem::path& folder() {
  static std::filesystem::path path;
  return path;
}

}  // namespace

void set_cache_folder(const std::filesystem::path& path) { folder() = path; }
const std::filesystem::path& get_cache_folder() { return folder(); }

}  // namespace zinc
