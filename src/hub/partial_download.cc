#include "hub/partial_download.h"

#include "base/atomic_file.h"
#include "base/mapped_file.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr uint64_t kMaxJournalBytes = uint64_t{4} << 30;

fs::path with_suffix(const fs::path& target, const char* suffix) {
  fs::path path = target;
  path += suffix;
  return path;
}
fs::path part_path(const fs::path& target) { return with_suffix(target, ".part"); }
fs::path journal_path(const fs::path& target) { return with_suffix(target, ".journal"); }

Result<std::string> read_whole(const RandomAccessFile& file) {
  ZINC_TRY(n_bytes, file.size());
  std::string text(n_bytes <= kMaxJournalBytes ? n_bytes : 0, '\0');
  ZINC_TRY(n_read, file.read_at(0, std::as_writable_bytes(std::span(text))));
  text.resize(n_read);
  return text;
}

// The process was killed after finish() and before the manifest was written: the file becomes the partial file again.
void reuse_finished_file(const fs::path& target, uint64_t n_bytes) {
  std::error_code error;
  const bool is_finished = !fs::exists(fs::symlink_status(part_path(target), error)) &&
                           fs::is_regular_file(fs::symlink_status(target, error)) &&
                           fs::file_size(target, error) == n_bytes;
  if (is_finished) fs::rename(target, part_path(target), error);
}

uint64_t complete_bytes(const Journal& journal) {
  uint64_t n_bytes = 0;
  for (uint64_t c = 0; c < journal.chunks.size(); ++c) {
    const uint64_t begin = c * journal.head.chunk_bytes;
    if (journal.chunks[c]) n_bytes += std::min(journal.head.chunk_bytes, journal.head.n_bytes - begin);
  }
  return n_bytes;
}

Error interrupted() {
  return fail(ErrorCode::cancelled, "interrupted while verifying the downloaded data; it is kept");
}

}  // namespace

PartialDownload::PartialDownload(fs::path target, JournalHead head, RandomAccessFile bytes, RandomAccessFile journal)
    : target_(std::move(target)), head_(std::move(head)), bytes_(std::move(bytes)), journal_(std::move(journal)) {}

Result<PartialDownload> PartialDownload::open(const fs::path& target, const JournalHead& head,
                                              const ReadProgress& progress) {
  ZINC_TRY(journal, RandomAccessFile::open(journal_path(target)));
  ZINC_TRY(text, read_whole(journal));
  std::optional<Journal> known = parse_journal(text);
  const bool is_same = known && known->head == head;
  if (is_same) reuse_finished_file(target, head.n_bytes);
  ZINC_TRY(bytes, RandomAccessFile::open(part_path(target)));
  PartialDownload part(target, head, std::move(bytes), std::move(journal));
  if (!is_same) {
    ZINC_TRY(n_on_disk, part.bytes_.size());
    if (known && n_on_disk > 0) part.n_discarded_bytes_ = complete_bytes(*known);
    if (Status begun = part.restart(); !begun.ok()) return begun.error();
    return part;
  }
  // An incomplete last line is removed, so that the next entry starts a new line.
  part.journal_bytes_ = text.rfind('\n') + 1;
  if (Status cut = part.journal_.resize(part.journal_bytes_); !cut.ok()) return cut.error();
  part.n_complete_bytes_ = complete_bytes(*known);
  part.chunks_ = std::move(known->chunks);
  ZINC_TRY(n_damaged, part.drop_corrupt_chunks(progress));
  return part;
}

void PartialDownload::remove(const fs::path& target) {
  std::error_code ignored;
  fs::remove(journal_path(target), ignored);
  fs::remove(part_path(target), ignored);
}

uint64_t PartialDownload::bytes_on_disk(const fs::path& target) {
  std::error_code error;
  if (const uint64_t n_bytes = allocated_bytes(part_path(target)); n_bytes > 0) return n_bytes;
  return fs::exists(journal_path(target), error) ? allocated_bytes(target) : 0;
}

uint64_t PartialDownload::chunk_end(uint64_t chunk) const {
  return std::min(head_.n_bytes, (chunk + 1) * head_.chunk_bytes);
}

Status PartialDownload::restart() {
  chunks_.assign(head_.n_chunks(), std::nullopt);
  n_complete_bytes_ = 0;
  if (Status cut = bytes_.resize(0); !cut.ok()) return cut;
  if (Status cut = journal_.resize(0); !cut.ok()) return cut;
  const std::string line = journal_head_line(head_);
  journal_bytes_ = line.size();
  return journal_.write_at(0, std::as_bytes(std::span(line)));
}

Status PartialDownload::reserve() {
  ZINC_TRY(n_bytes, bytes_.size());
  return n_bytes == head_.n_bytes ? ok_status() : bytes_.resize(head_.n_bytes);
}

Status PartialDownload::set_chunk(uint64_t chunk, const std::optional<Sha256::Digest>& digest) {
  const uint64_t n_bytes = chunk_end(chunk) - chunk_begin(chunk);
  if (chunks_[chunk]) n_complete_bytes_ -= n_bytes;
  chunks_[chunk] = digest;
  if (digest) n_complete_bytes_ += n_bytes;
  const std::string line = journal_chunk_line(chunk, digest);
  if (Status written = journal_.write_at(journal_bytes_, std::as_bytes(std::span(line))); !written.ok()) return written;
  journal_bytes_ += line.size();
  return ok_status();
}

Result<Sha256::Digest> PartialDownload::hash_on_disk(uint64_t chunk) const {
  Sha256 hash;
  std::vector<std::byte> block(kReadBytes);
  for (uint64_t at = chunk_begin(chunk); at < chunk_end(chunk);) {
    const size_t n_wanted = static_cast<size_t>(std::min<uint64_t>(block.size(), chunk_end(chunk) - at));
    ZINC_TRY(n_read, bytes_.read_at(at, std::span(block).first(n_wanted)));
    if (n_read == 0) break;  // a truncated file: the digest will not match
    hash.update(std::span(block).first(n_read));
    at += n_read;
  }
  return hash.finish();
}

Result<uint64_t> PartialDownload::drop_corrupt_chunks(const ReadProgress& progress) {
  uint64_t n_corrupt = 0, n_checked_bytes = 0;
  for (uint64_t c = 0; c < n_chunks(); ++c) {
    if (!chunks_[c]) continue;
    if (!progress(n_checked_bytes)) return interrupted();
    ZINC_TRY(digest, hash_on_disk(c));
    n_checked_bytes += chunk_end(c) - chunk_begin(c);
    if (digest == *chunks_[c]) continue;
    ++n_corrupt;
    if (Status dropped = set_chunk(c, std::nullopt); !dropped.ok()) return dropped.error();
  }
  return n_corrupt;
}

Result<std::string> PartialDownload::sha256(const ReadProgress& progress) const {
  Sha256 hash;
  std::vector<std::byte> block(kReadBytes);
  for (uint64_t at = 0; at < head_.n_bytes;) {
    if (!progress(at)) return interrupted();
    ZINC_TRY(n_read, bytes_.read_at(at, block));
    if (n_read == 0)
      return fail(ErrorCode::io, "{}: another program truncated the partial download; repeat the command to resume",
                  part_path(target_).string());
    hash.update(std::span(block).first(n_read));
    at += n_read;
  }
  return to_hex(hash.finish());
}

Status PartialDownload::finish() { return rename_durably(part_path(target_), target_); }

}  // namespace zinc
