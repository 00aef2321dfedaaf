// A file on its way: `<target>.part` holds the bytes, `<target>.journal` says which chunks of it are whole. Whatever
// kills the process, opening it again finds every journalled chunk, checked against its hash. The journal outlives the
// part: it vouches for the finished file until remove() is called by who has noted elsewhere that it is there. The
// caller holds the lock of the target; one thread.
#pragma once

#include <filesystem>
#include <functional>

#include "base/positioned_file.h"
#include "hub/journal.h"

namespace zinc {

// Called now and then while bytes are read back, with how many so far; returns false to stop.
using ReadProgress = std::function<bool(uint64_t n_bytes)>;

class PartFile {
 public:
  // Takes up what lies there if it is of the same file, also when it was finished; else begins anew.
  static Result<PartFile> open(const std::filesystem::path& target, const JournalHead& head,
                               const ReadProgress& progress);
  static void remove(const std::filesystem::path& target);  // the part and the journal, if there are any
  // What of the target's room is taken already, by the part or by a finished file that open() may take up.
  static uint64_t bytes_on_disk(const std::filesystem::path& target);

  const JournalHead& head() const { return head_; }
  uint64_t n_chunks() const { return chunks_.size(); }
  uint64_t chunk_begin(uint64_t chunk) const { return chunk * head_.chunk_bytes; }
  uint64_t chunk_end(uint64_t chunk) const;
  const std::optional<Sha256::Digest>& digest(uint64_t chunk) const { return chunks_[chunk]; }
  uint64_t n_whole_bytes() const { return n_whole_bytes_; }          // in journalled chunks
  uint64_t n_discarded_bytes() const { return n_discarded_bytes_; }  // of another version, found there by open()

  Status reserve();  // room on the disk for the whole file
  Status write(uint64_t offset, std::span<const std::byte> bytes) { return bytes_.write_at(offset, bytes); }
  Status set_chunk(uint64_t chunk, const std::optional<Sha256::Digest>& digest);
  // Reads all whole chunks back and takes those out of the journal whose bytes are not what arrived. Returns how many.
  Result<uint64_t> drop_damaged(const ReadProgress& progress);
  Result<std::string> sha256(const ReadProgress& progress) const;  // of the whole file
  Status finish();                                                 // durable, under its own name; nothing may follow

 private:
  PartFile(std::filesystem::path target, JournalHead head, PositionedFile bytes, PositionedFile journal);
  Result<Sha256::Digest> digest_on_disk(uint64_t chunk) const;
  Status begin_anew();

  std::filesystem::path target_;
  JournalHead head_;
  PositionedFile bytes_, journal_;
  uint64_t journal_bytes_ = 0;
  std::vector<std::optional<Sha256::Digest>> chunks_;
  uint64_t n_whole_bytes_ = 0, n_discarded_bytes_ = 0;
};

}  // namespace zinc
