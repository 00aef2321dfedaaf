#include "hub/file_hash.h"

#include <algorithm>

#include "base/mapped_file.h"
#include "base/sha256.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = size_t{4} << 20;

}  // namespace

Result<bool> has_sha256(const fs::path& file, uint64_t n_bytes, std::string_view sha256, const DownloadHooks& hooks) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  if (n_bytes != 0 && (fs::file_size(file, error) != n_bytes || error)) return false;
  const Result<MappedFile> mapped = MappedFile::open(file);
  if (!mapped.ok()) return false;
  hooks.on_message(fmt::format("verifying {}, which already exists", file.filename().string()));
  const std::span<const std::byte> bytes = mapped.value().bytes();
  Sha256 hash;
  for (size_t at = 0; at < bytes.size();) {
    if (hooks.cancelled())
      return fail(ErrorCode::cancelled, "interrupted while verifying the downloaded data; it is kept");
    const size_t n = std::min(kBlockBytes, bytes.size() - at);
    hash.update(bytes.subspan(at, n));
    mapped.value().release_pages(bytes.subspan(at, n));
    at += n;
    hooks.progress({DownloadPhase::verifying, bytes.size(), at});
  }
  return to_hex(hash.finish()) == sha256;
}

}  // namespace zinc
