#include "base/cache_folder.h"

namespace zinc {
namespace {

std::filesystem::path& folder() {
  static std::filesystem::path path;
  return path;
}

}  // namespace

void keep_caches_in(const std::filesystem::path& path) { folder() = path; }
const std::filesystem::path& kept_caches_folder() { return folder(); }

}  // namespace zinc
