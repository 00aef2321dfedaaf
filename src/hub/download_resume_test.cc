// Resuming interrupted downloads.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "hub/partial_download.h"
#include "tests/support/download_fixture.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

class ResumedDownload : public testing::Test {
 protected:
  Result<Downloaded> fetch(const std::string& url, const DownloadHooks& hooks = {}, const std::string& sha256 = "") {
    return download_file({url, "", folder_.target(), 0, sha256}, quick_limits(), hooks);
  }
  // Downloads about `n_bytes`, then cancels as Ctrl-C would.
  void fetch_some(const std::string& url, uint64_t n_bytes, const std::string& sha256 = "") {
    uint64_t n_done = 0;
    const DownloadHooks hooks{.progress = [&](const DownloadProgress& p) { n_done = p.n_done; },
                              .on_message = [](std::string_view) {},
                              .cancelled = [&] { return n_done >= n_bytes; }};
    const Result<Downloaded> stopped = fetch(url, hooks, sha256);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
    EXPECT_FALSE(fs::exists(folder_.target()));
  }
  // Bytes in journaled chunks.
  uint64_t n_kept() const {
    const std::optional<Journal> journal = parse_journal(contents(folder_.journal()));
    if (!journal) return 0;
    uint64_t n_bytes = 0;
    for (uint64_t c = 0; c < journal->chunks.size(); ++c) {
      if (journal->chunks[c]) n_bytes += std::min(kChunk, kFileBytes - c * kChunk);
    }
    return n_bytes;
  }
  // Slow enough to be cancelled halfway.
  FaultServer::Script slow(ServedFile file = old_file()) const {
    return with_ranges_faulty([](auto&, FaultReply& r) { r.piece_bytes = 8 << 10, r.piece_pause_ms = 5; },
                              std::move(file));
  }
  DownloadFolder folder_;
};

TEST_F(ResumedDownload, downloads_only_missing_chunks) {
  FaultServer server(slow());
  fetch_some(server.url("/m"), kFileBytes / 2);
  const uint64_t n_there = n_kept();
  EXPECT_GT(n_there, kFileBytes / 4);
  const Result<Downloaded> done = fetch(server.url("/m"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, kFileBytes - n_there);
  EXPECT_TRUE(contents(folder_.target()) == old_bytes());
}

TEST_F(ResumedDownload, only_the_chunk_corrupt_on_disk_is_downloaded_again) {
  FaultServer server(slow());
  fetch_some(server.url("/m"), kFileBytes / 2);
  const uint64_t n_there = n_kept();
  const std::optional<Journal> journal = parse_journal(contents(folder_.journal()));
  uint64_t chunk = 0;
  while (!journal->chunks[chunk]) ++chunk;
  {
    std::fstream part(folder_.part(), std::ios::binary | std::ios::in | std::ios::out);
    part.seekp(static_cast<std::streamoff>(chunk * kChunk + 17));
    part.put(static_cast<char>(old_bytes()[chunk * kChunk + 17] ^ 1));
  }
  const Result<Downloaded> done = fetch(server.url("/m"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, kFileBytes - n_there + kChunk);
  EXPECT_TRUE(contents(folder_.target()) == old_bytes());
}

TEST_F(ResumedDownload, truncated_journal_costs_only_the_chunks_it_lost) {
  FaultServer server(slow());
  fetch_some(server.url("/m"), kFileBytes / 2);
  const std::string journal = contents(folder_.journal());
  const std::string part = contents(folder_.part());
  for (size_t n = 0; n <= journal.size(); n += 1 + journal.size() / 23) {
    fs::remove(folder_.target());
    std::ofstream(folder_.journal(), std::ios::binary) << journal.substr(0, n);
    std::ofstream(folder_.part(), std::ios::binary) << part;
    FaultServer quick([](const ServedRequest& request) { return honest_reply(request, old_file()); });
    const uint64_t n_there = n_kept();
    const Result<Downloaded> done = fetch(quick.url("/m"));
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(done.value().n_fetched, kFileBytes - n_there) << n;
    EXPECT_TRUE(contents(folder_.target()) == old_bytes()) << n;
  }
}

TEST_F(ResumedDownload, bytes_of_an_older_version_are_not_mixed_in) {
  {
    FaultServer server(slow());
    fetch_some(server.url("/m"), kFileBytes / 2);
  }
  FaultServer server([](const ServedRequest& request) { return honest_reply(request, new_file()); });
  const Result<Downloaded> done = fetch(server.url("/m"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_TRUE(contents(folder_.target()) == new_bytes());
  EXPECT_EQ(done.value().n_fetched, kFileBytes);
}

TEST_F(ResumedDownload, known_hash_allows_resuming_without_validators) {
  const ServedFile bare{.bytes = old_bytes(), .etag = ""};
  FaultServer server(slow(bare));
  fetch_some(server.url("/m"), kFileBytes / 2, sha256_of(old_bytes()));
  const uint64_t n_there = n_kept();
  const Result<Downloaded> done = fetch(server.url("/m"), {}, sha256_of(old_bytes()));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, kFileBytes - n_there);
}

TEST_F(ResumedDownload, server_failure_keeps_complete_chunks) {
  FaultServer dying([n = 0](const ServedRequest& request) mutable {
    FaultReply reply = honest_reply(request, old_file());
    if (++n > 4) reply.raw = "";
    return reply;
  });
  const Result<Downloaded> broken = fetch(dying.url("/m"));
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.error().message.find("repeat the command to resume"), std::string::npos) << broken.error().message;
  const uint64_t n_there = n_kept();
  EXPECT_GT(n_there, 0u);
  FaultServer server([](const ServedRequest& request) { return honest_reply(request, old_file()); });
  const Result<Downloaded> done = fetch(server.url("/m"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, kFileBytes - n_there);
}

TEST_F(ResumedDownload, bit_flip_in_transit_is_found_by_a_second_pass) {
  FaultServer server(with_first_faulty(
      1, [](auto&, FaultReply& r) { flip_byte(r); }, hashed_file()));
  const Result<Downloaded> done = fetch(server.url("/m"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, 2 * kFileBytes);
  EXPECT_TRUE(done.value().is_verified);
}

TEST_F(ResumedDownload, bit_flip_is_found_by_a_second_pass_without_ranges) {
  FaultServer server([](ServedRequest request) {
    request.range.reset();
    FaultReply reply = honest_reply(request, hashed_file());
    if (request.number == 1) flip_byte(reply);
    return reply;
  });
  const Result<Downloaded> done = fetch(server.url("/m"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, 2 * kFileBytes);
  EXPECT_TRUE(contents(folder_.target()) == old_bytes());
}

TEST_F(ResumedDownload, chunks_of_several_mirrors_are_kept_if_the_hash_is_known) {
  FaultServer server([](const ServedRequest& request) {
    return honest_reply(request, {.bytes = old_bytes(), .etag = fmt::format("\"v{}\"", request.number)});
  });
  const Result<Downloaded> done = fetch(server.url("/m"), {}, sha256_of(old_bytes()));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, kFileBytes);
}

TEST_F(ResumedDownload, existing_file_with_the_stated_hash_is_not_downloaded) {
  FaultServer server([](const ServedRequest& request) { return honest_reply(request, hashed_file()); });
  put(folder_.target(), old_bytes());
  const Result<Downloaded> done = fetch(server.url("/m"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, 0u);
  EXPECT_TRUE(done.value().is_verified);
  put(folder_.target(), new_bytes());
  EXPECT_EQ(fetch(server.url("/m")).value().n_fetched, kFileBytes);
  EXPECT_TRUE(contents(folder_.target()) == old_bytes());
}

TEST_F(ResumedDownload, journal_verifies_a_finished_file_without_stated_hash) {
  FaultServer server([](const ServedRequest& request) { return honest_reply(request, old_file()); });
  ASSERT_EQ(fetch(server.url("/m")).value().n_fetched, kFileBytes);
  EXPECT_EQ(fetch(server.url("/m")).value().n_fetched, 0u);
  PartialDownload::remove(folder_.target());  // as the caller does after recording the file
  EXPECT_EQ(fetch(server.url("/m")).value().n_fetched, kFileBytes);
}

TEST_F(ResumedDownload, old_version_stays_until_the_new_one_is_complete) {
  FaultServer before([](const ServedRequest& request) { return honest_reply(request, old_file()); });
  ASSERT_TRUE(fetch(before.url("/m")).ok());
  FaultServer broken(with_ranges_faulty([](auto&, FaultReply& r) { r.cut_after = 1; }, new_file()));
  EXPECT_FALSE(fetch(broken.url("/m")).ok());
  EXPECT_TRUE(contents(folder_.target()) == old_bytes());
}

TEST_F(ResumedDownload, starting_over_is_reported) {
  {
    FaultServer server(slow());
    fetch_some(server.url("/m"), kFileBytes / 2);
  }
  FaultServer server([](const ServedRequest& request) { return honest_reply(request, new_file()); });
  std::string said;
  DownloadHooks hooks;
  hooks.on_message = [&](std::string_view line) { said += line; };
  ASSERT_TRUE(fetch(server.url("/m"), hooks).ok());
  EXPECT_NE(said.find("another version"), std::string::npos) << said;
}

TEST_F(ResumedDownload, file_size_limit_is_an_error_not_a_crash) {
  FaultServer server([](const ServedRequest& request) { return honest_reply(request, old_file()); });
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{kFileBytes / 2, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Result<Downloaded> refused = fetch(server.url("/m"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::io) << refused.error().message;
  EXPECT_TRUE(fetch(server.url("/m")).ok());
}

TEST_F(ResumedDownload, token_is_sent_to_its_own_host_only) {
  FaultServer elsewhere([](const ServedRequest& request) { return honest_reply(request, hashed_file()); });
  FaultServer server([&](const ServedRequest&) {
    return FaultReply{.status = 302, .headers = {"Location: " + elsewhere.url("/blob").replace(7, 9, "localhost")}};
  });
  const Result<Downloaded> done =
      download_file({server.url("/m"), "secret", folder_.target(), 0, ""}, quick_limits(), {});
  ASSERT_TRUE(done.ok()) << done.error().message;
  for (const ServedRequest& request : server.requests()) {
    EXPECT_EQ(request.headers.at("authorization"), "Bearer secret");
  }
  for (const ServedRequest& request : elsewhere.requests()) EXPECT_FALSE(request.headers.contains("authorization"));
}

TEST_F(ResumedDownload, redirect_on_the_same_host_keeps_the_token) {
  FaultServer server([](const ServedRequest& request) {
    if (!request.headers.contains("authorization")) return FaultReply{.status = 401};
    if (request.path == "/m") return FaultReply{.status = 307, .headers = {"Location: /cached/m"}};
    return honest_reply(request, old_file());
  });
  const Result<Downloaded> done =
      download_file({server.url("/m"), "secret", folder_.target(), 0, ""}, quick_limits(), {});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_TRUE(contents(folder_.target()) == old_bytes());
}

}  // namespace
}  // namespace zinc
