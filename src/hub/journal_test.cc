#include "hub/journal.h"

#include <gtest/gtest.h>

namespace zinc {
namespace {

Sha256::Digest digest_of(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.finish();
}

const JournalHead kHead{.n_bytes = 250, .chunk_bytes = 100, .identity = "etag \"a b\"\n"};

TEST(Journal, round_trips) {
  const std::string text = journal_head_line(kHead) + journal_chunk_line(0, digest_of("a")) +
                           journal_chunk_line(2, digest_of("b")) + journal_chunk_line(0, std::nullopt) +
                           journal_chunk_line(2, digest_of("c"));
  const std::optional<Journal> journal = parse_journal(text);
  ASSERT_TRUE(journal);
  EXPECT_EQ(journal->head, kHead);
  ASSERT_EQ(journal->chunks.size(), 3u);
  EXPECT_FALSE(journal->chunks[0]);
  EXPECT_FALSE(journal->chunks[1]);
  EXPECT_EQ(journal->chunks[2], digest_of("c"));
}

TEST(Journal, truncated_journal_lists_only_complete_lines) {
  const std::string text =
      journal_head_line(kHead) + journal_chunk_line(0, digest_of("a")) + journal_chunk_line(1, digest_of("b"));
  const size_t first_line = journal_head_line(kHead).size();
  for (size_t n = 0; n <= text.size(); ++n) {
    const std::optional<Journal> journal = parse_journal(text.substr(0, n));
    EXPECT_EQ(journal.has_value(), n >= first_line) << n;
    if (!journal) continue;
    const size_t second_line = first_line + journal_chunk_line(0, digest_of("a")).size();
    EXPECT_EQ(journal->chunks[0].has_value(), n >= second_line) << n;
    EXPECT_EQ(journal->chunks[1].has_value(), n == text.size()) << n;
  }
}

TEST(Journal, invalid_lines_are_ignored) {
  const std::string hex = to_hex(digest_of("a"));
  for (const std::string& line : {std::string("3 ") + hex, std::string("-1 ") + hex, std::string("x ") + hex,
                                  std::string("0") + hex, fmt::format("0 {}", hex.substr(1)), "0 " + hex + "0",
                                  std::string("0 "), std::string("99999999999999999999 ") + hex}) {
    const std::optional<Journal> journal = parse_journal(journal_head_line(kHead) + line + "\n");
    ASSERT_TRUE(journal);
    for (const auto& chunk : journal->chunks) EXPECT_FALSE(chunk) << line;
  }
}

TEST(Journal, invalid_header_is_rejected) {
  for (const char* head :
       {"", "{}", "[]", "null", R"({"format":"zinc-journal-1","bytes":0,"chunk_bytes":1,"identity":""})",
        R"({"format":"zinc-journal-1","bytes":9223372036854775807,"chunk_bytes":1,"identity":""})",
        R"({"format":"zinc-journal-1","bytes":-5,"chunk_bytes":1,"identity":""})",
        R"({"format":"other","bytes":5,"chunk_bytes":1,"identity":""})"}) {
    EXPECT_FALSE(parse_journal(std::string(head) + "\n")) << head;
  }
}

TEST(Sha256Text, accepts_exactly_64_hex_digits) {
  const std::string hex = to_hex(digest_of("a"));
  std::string upper = hex;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  EXPECT_EQ(parse_sha256(hex), digest_of("a"));
  EXPECT_EQ(parse_sha256(upper), digest_of("a"));
  EXPECT_FALSE(parse_sha256(hex.substr(1)));
  EXPECT_FALSE(parse_sha256(hex + "0"));
  EXPECT_FALSE(parse_sha256(fmt::format("g{}", hex.substr(1))));
}

}  // namespace
}  // namespace zinc
