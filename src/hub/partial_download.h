// An incomplete download: `<target>.part` holds the bytes, `<target>.journal` lists the complete chunks. After a kill,
// open() finds every journaled chunk and verifies its hash. The journal outlives the .part file: it verifies the
// finished file until the caller has recorded it elsewhere and calls remove(). The caller holds the target's lock; one
// thread.
#pragma once

#include <filesystem>
#include <functional>

#include "base/random_access_file.h"
#include "hub/journal.h"

namespace zinc {

// Called periodically while data is verified, with the bytes so far; returns false to stop.
using ReadProgress = std::function<bool(uint64_t n_bytes)>;

class PartialDownload {
 public:
  // Resumes an existing download of the same version, finished or not; else starts over.
  static Result<PartialDownload> open(const std::filesystem::path& target, const JournalHead& head,
                                      const ReadProgress& progress);
  static void remove(const std::filesystem::path& target);  // deletes the .part file and the journal
  // Disk space already used by the .part file, or by a finished file that open() may resume.
  static uint64_t bytes_on_disk(const std::filesystem::path& target);

  const JournalHead& head() const { return head_; }
  uint64_t n_chunks() const { return chunks_.size(); }
  uint64_t chunk_begin(uint64_t chunk) const { return chunk * head_.chunk_bytes; }
  uint64_t chunk_end(uint64_t chunk) const;
  const std::optional<Sha256::Digest>& digest(uint64_t chunk) const { return chunks_[chunk]; }
  uint64_t n_complete_bytes() const { return n_complete_bytes_; }    // in journaled chunks
  uint64_t n_discarded_bytes() const { return n_discarded_bytes_; }  // of another version, found by open()

  Status reserve();  // disk space for the whole file
  Status write(uint64_t offset, std::span<const std::byte> bytes) { return bytes_.write_at(offset, bytes); }
  Status set_chunk(uint64_t chunk, const std::optional<Sha256::Digest>& digest);
  // Verifies all complete chunks and removes corrupt ones from the journal. Returns how many.
  Result<uint64_t> drop_corrupt_chunks(const ReadProgress& progress);
  Result<std::string> sha256(const ReadProgress& progress) const;  // of the whole file
  Status finish();  // durable rename to the target; must be the last call

 private:
  PartialDownload(std::filesystem::path target, JournalHead head, RandomAccessFile bytes, RandomAccessFile journal);
  Result<Sha256::Digest> hash_on_disk(uint64_t chunk) const;
  Status restart();

  std::filesystem::path target_;
  JournalHead head_;
  RandomAccessFile bytes_, journal_;
  uint64_t journal_bytes_ = 0;
  std::vector<std::optional<Sha256::Digest>> chunks_;
  uint64_t n_complete_bytes_ = 0, n_discarded_bytes_ = 0;
};

}  // namespace zinc
