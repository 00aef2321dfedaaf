#include "hub/disk_space.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kSpareBytes = uint64_t{16} << 20;

}  // namespace

uint64_t saturating_sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

uint64_t free_disk_bytes(fs::path folder) {
  std::error_code error;
  while (!folder.empty() && !fs::exists(folder, error) && folder != folder.parent_path()) folder = folder.parent_path();
  const fs::space_info space = fs::space(folder, error);
  return error ? 0 : space.available;
}

Status check_disk_space(const fs::path& folder, uint64_t n_needed) {
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (n_needed == 0 || error || space.available >= saturating_sum(n_needed, kSpareBytes)) return ok_status();
  return fail(
      ErrorCode::io,
      "{}: not enough disk space: {} MB free, {} MB needed; free some space, or set XDG_CACHE_HOME to a folder on "
      "another disk",
      folder.string(), space.available / 1'000'000, n_needed / 1'000'000);
}

}  // namespace zinc
