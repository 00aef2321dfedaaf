#include "base/file_fingerprint.h"

#include <algorithm>

#include "base/mapped_file.h"

namespace zinc {
namespace {

constexpr size_t kHeadBytes = size_t{8} << 20;  // covers metadata, tokenizer and tensor list of every published model
constexpr size_t kSamples = 512, kSampleBytes = 4096;

}  // namespace

Status add_file_samples(std::span<const std::string> paths, Sha256& hash) {
  for (const std::string& path : paths) {
    ZINC_TRY(file, MappedFile::open(path));
    const std::span<const std::byte> bytes = file.bytes();
    const std::string size = std::to_string(bytes.size());
    const uint64_t n = size.size();
    hash.update(std::as_bytes(std::span(&n, 1)));
    hash.update(std::as_bytes(std::span(size)));
    hash.update(bytes.first(std::min(bytes.size(), kHeadBytes)));
    for (size_t i = 0; i < kSamples && bytes.size() > kHeadBytes; ++i) {
      const size_t at = (bytes.size() - kSampleBytes) / kSamples * i;
      hash.update(bytes.subspan(at, kSampleBytes));
    }
  }
  return ok_status();
}

Result<Sha256::Digest> fingerprint_of_files(std::span<const std::string> paths) {
  Sha256 hash;
  if (Status s = add_file_samples(paths, hash); !s.ok()) return s.error();
  return hash.finish();
}

}  // namespace zinc
