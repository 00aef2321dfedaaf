// What a download has so far, as text that survives being killed at any byte: a first line that says of which file,
// then one line per chunk with the SHA-256 of its bytes. Lines are only ever appended; a line that is cut or wrong is
// no line. A later line about a chunk replaces an earlier one, "-" takes it back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"

namespace zinc {

// Which bytes the chunks are of: the same size, cut the same way, and the same version on the server.
struct JournalHead {
  uint64_t n_bytes = 0, chunk_bytes = 0;
  std::string identity;  // what the server says tells this version from others
  bool operator==(const JournalHead&) const = default;

  uint64_t n_chunks() const { return (n_bytes + chunk_bytes - 1) / chunk_bytes; }
};

struct Journal {
  JournalHead head;
  std::vector<std::optional<Sha256::Digest>> chunks;  // one per chunk of the file
};

std::string journal_head_line(const JournalHead& head);
std::string journal_chunk_line(uint64_t chunk, const std::optional<Sha256::Digest>& digest);
// Nothing if `text` does not begin with a head, or with one that no download of ours would write.
std::optional<Journal> parse_journal(std::string_view text);

std::optional<Sha256::Digest> parse_sha256(std::string_view hex);  // 64 hexadecimal digits of either case

}  // namespace zinc
