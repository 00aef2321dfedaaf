#include "base/cgroup_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

namespace zinc {
namespace {

namespace fs = std::filesystem;

// File and field names of one cgroup version.
struct CgroupFields {
  const char *limit, *usage, *inactive_cache, *active_cache;
};
constexpr CgroupFields kVersion2 = {"memory.max", "memory.current", "inactive_file", "active_file"};
constexpr CgroupFields kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                    "total_active_file"};

std::optional<size_t> read_number(const fs::path& file) {
  std::ifstream text(file);
  size_t number = 0;
  if (!(text >> number)) return std::nullopt;  // absent, or "max"
  return number;
}

size_t cache_bytes(const fs::path& group, const CgroupFields& fields) {
  std::ifstream stat(group / "memory.stat");
  std::string key;
  size_t n_bytes = 0, sum = 0;
  while (stat >> key >> n_bytes) {
    if (key == fields.inactive_cache || key == fields.active_cache) sum += n_bytes;
  }
  return sum;
}

void apply_group(const fs::path& group, const CgroupFields& fields, CgroupMemory& memory) {
  const std::optional<size_t> limit = read_number(group / fields.limit);
  if (!limit) return;
  memory.limit = std::min(memory.limit, *limit);
  const size_t n_used = read_number(group / fields.usage).value_or(0);
  const size_t n_cached = cache_bytes(group, fields);
  const size_t n_resident = n_used - std::min(n_used, n_cached);
  memory.available = std::min(memory.available, *limit - std::min(*limit, n_resident));
}

// In a container the path may be the host's path while only the mount root is visible: missing files impose no limit,
// and the root is always read.
void apply_groups(const fs::path& root, fs::path path, const CgroupFields& fields, CgroupMemory& memory) {
  apply_group(root, fields, memory);
  if (path.string().find("..") != std::string::npos) return;
  for (path = path.relative_path(); !path.empty(); path = path.parent_path()) apply_group(root / path, fields, memory);
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

CgroupMemory read_cgroup_memory(const fs::path& groups, const fs::path& root) {
  CgroupMemory memory;
  std::ifstream text(groups);
  for (std::string line; std::getline(text, line);) {  // "0::/path" or "9:cpu,memory:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) apply_groups(root, path, kVersion2, memory);
    if (has_word(controllers, "memory")) apply_groups(root / "memory", path, kVersion1, memory);
  }
  return memory;
}

}  // namespace zinc
