// The journal of a download, as text that survives a kill at any byte: a header line that identifies the file, then one
// line per complete chunk with its SHA-256. Append-only; incomplete or invalid lines are ignored. A later line for a
// chunk replaces an earlier one; "-" removes the chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"

namespace zinc {

// Identifies the file: its size, the chunk size, and the version on the server.
struct JournalHead {
  uint64_t n_bytes = 0, chunk_bytes = 0;
  std::string identity;  // RemoteFile::identity()
  bool operator==(const JournalHead&) const = default;

  uint64_t n_chunks() const { return (n_bytes + chunk_bytes - 1) / chunk_bytes; }
};

struct Journal {
  JournalHead head;
  std::vector<std::optional<Sha256::Digest>> chunks;  // one per chunk of the file
};

std::string journal_head_line(const JournalHead& head);
std::string journal_chunk_line(uint64_t chunk, const std::optional<Sha256::Digest>& digest);
// nullopt if `text` does not begin with a valid header.
std::optional<Journal> parse_journal(std::string_view text);

std::optional<Sha256::Digest> parse_sha256(std::string_view hex);  // 64 hexadecimal digits of either case

}  // namespace zinc
