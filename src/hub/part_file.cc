#include "hub/part_file.h"

#include "base/atomic_file.h"
#include "base/mapped_file.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReadBytes = size_t{1} << 20;
constexpr uint64_t kMaxJournalBytes = uint64_t{4} << 30;

fs::path beside(const fs::path& target, const char* suffix) {
  fs::path path = target;
  path += suffix;
  return path;
}
fs::path part_path(const fs::path& target) { return beside(target, ".part"); }
fs::path journal_path(const fs::path& target) { return beside(target, ".journal"); }

Result<std::string> read_whole(const PositionedFile& file) {
  ZINC_TRY(n_bytes, file.size());
  std::string text(n_bytes <= kMaxJournalBytes ? n_bytes : 0, '\0');
  ZINC_TRY(n_read, file.read_at(0, std::as_writable_bytes(std::span(text))));
  text.resize(n_read);
  return text;
}

// Killed after it was finished and before anyone noted that: it goes on as the part it was.
void take_up_finished(const fs::path& target, uint64_t n_bytes) {
  std::error_code error;
  const bool is_finished = !fs::exists(fs::symlink_status(part_path(target), error)) &&
                           fs::is_regular_file(fs::symlink_status(target, error)) &&
                           fs::file_size(target, error) == n_bytes;
  if (is_finished) fs::rename(target, part_path(target), error);
}

uint64_t whole_bytes(const Journal& journal) {
  uint64_t n_bytes = 0;
  for (uint64_t c = 0; c < journal.chunks.size(); ++c) {
    const uint64_t begin = c * journal.head.chunk_bytes;
    if (journal.chunks[c]) n_bytes += std::min(journal.head.chunk_bytes, journal.head.n_bytes - begin);
  }
  return n_bytes;
}

Error stopped() { return fail(ErrorCode::cancelled, "interrupted while checking what is there; it is kept"); }

}  // namespace

PartFile::PartFile(fs::path target, JournalHead head, PositionedFile bytes, PositionedFile journal)
    : target_(std::move(target)), head_(std::move(head)), bytes_(std::move(bytes)), journal_(std::move(journal)) {}

Result<PartFile> PartFile::open(const fs::path& target, const JournalHead& head, const ReadProgress& progress) {
  ZINC_TRY(journal, PositionedFile::open(journal_path(target)));
  ZINC_TRY(text, read_whole(journal));
  std::optional<Journal> known = parse_journal(text);
  const bool is_same = known && known->head == head;
  if (is_same) take_up_finished(target, head.n_bytes);
  ZINC_TRY(bytes, PositionedFile::open(part_path(target)));
  PartFile part(target, head, std::move(bytes), std::move(journal));
  if (!is_same) {
    ZINC_TRY(n_there, part.bytes_.size());
    if (known && n_there > 0) part.n_discarded_bytes_ = whole_bytes(*known);
    if (Status begun = part.begin_anew(); !begun.ok()) return begun.error();
    return part;
  }
  // A cut last line is cut off, so that the next one starts on a line of its own.
  part.journal_bytes_ = text.rfind('\n') + 1;
  if (Status cut = part.journal_.resize(part.journal_bytes_); !cut.ok()) return cut.error();
  part.n_whole_bytes_ = whole_bytes(*known);
  part.chunks_ = std::move(known->chunks);
  ZINC_TRY(n_damaged, part.drop_damaged(progress));
  return part;
}

void PartFile::remove(const fs::path& target) {
  std::error_code ignored;
  fs::remove(journal_path(target), ignored);
  fs::remove(part_path(target), ignored);
}

uint64_t PartFile::bytes_on_disk(const fs::path& target) {
  std::error_code error;
  if (const uint64_t n_bytes = allocated_bytes(part_path(target)); n_bytes > 0) return n_bytes;
  return fs::exists(journal_path(target), error) ? allocated_bytes(target) : 0;
}

uint64_t PartFile::chunk_end(uint64_t chunk) const { return std::min(head_.n_bytes, (chunk + 1) * head_.chunk_bytes); }

Status PartFile::begin_anew() {
  chunks_.assign(head_.n_chunks(), std::nullopt);
  n_whole_bytes_ = 0;
  if (Status cut = bytes_.resize(0); !cut.ok()) return cut;
  if (Status cut = journal_.resize(0); !cut.ok()) return cut;
  const std::string line = journal_head_line(head_);
  journal_bytes_ = line.size();
  return journal_.write_at(0, std::as_bytes(std::span(line)));
}

Status PartFile::reserve() {
  ZINC_TRY(n_bytes, bytes_.size());
  return n_bytes == head_.n_bytes ? ok_status() : bytes_.resize(head_.n_bytes);
}

Status PartFile::set_chunk(uint64_t chunk, const std::optional<Sha256::Digest>& digest) {
  const uint64_t n_bytes = chunk_end(chunk) - chunk_begin(chunk);
  if (chunks_[chunk]) n_whole_bytes_ -= n_bytes;
  chunks_[chunk] = digest;
  if (digest) n_whole_bytes_ += n_bytes;
  const std::string line = journal_chunk_line(chunk, digest);
  if (Status written = journal_.write_at(journal_bytes_, std::as_bytes(std::span(line))); !written.ok()) return written;
  journal_bytes_ += line.size();
  return ok_status();
}

Result<Sha256::Digest> PartFile::digest_on_disk(uint64_t chunk) const {
  Sha256 hash;
  std::vector<std::byte> block(kReadBytes);
  for (uint64_t at = chunk_begin(chunk); at < chunk_end(chunk);) {
    const size_t n_wanted = static_cast<size_t>(std::min<uint64_t>(block.size(), chunk_end(chunk) - at));
    ZINC_TRY(n_read, bytes_.read_at(at, std::span(block).first(n_wanted)));
    if (n_read == 0) break;  // a shorter file: the digest will not be the one asked for
    hash.update(std::span(block).first(n_read));
    at += n_read;
  }
  return hash.finish();
}

Result<uint64_t> PartFile::drop_damaged(const ReadProgress& progress) {
  uint64_t n_damaged = 0, n_checked_bytes = 0;
  for (uint64_t c = 0; c < n_chunks(); ++c) {
    if (!chunks_[c]) continue;
    if (!progress(n_checked_bytes)) return stopped();
    ZINC_TRY(found, digest_on_disk(c));
    n_checked_bytes += chunk_end(c) - chunk_begin(c);
    if (found == *chunks_[c]) continue;
    ++n_damaged;
    if (Status dropped = set_chunk(c, std::nullopt); !dropped.ok()) return dropped.error();
  }
  return n_damaged;
}

Result<std::string> PartFile::sha256(const ReadProgress& progress) const {
  Sha256 hash;
  std::vector<std::byte> block(kReadBytes);
  for (uint64_t at = 0; at < head_.n_bytes;) {
    if (!progress(at)) return stopped();
    ZINC_TRY(n_read, bytes_.read_at(at, block));
    if (n_read == 0) return fail(ErrorCode::io, "{}: the file is shorter than it was", part_path(target_).string());
    hash.update(std::span(block).first(n_read));
    at += n_read;
  }
  return to_hex(hash.finish());
}

Status PartFile::finish() { return rename_durably(part_path(target_), target_); }

}  // namespace zinc
