#include "hub/download.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <iterator>
#include <random>

#include "base/sha256.h"
#include "hub/part_file.h"
#include "tests/support/fault_server.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kChunk = 64 << 10;
constexpr size_t kFileBytes = (1 << 20) + 123;

std::string random_bytes(size_t n_bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(n_bytes, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

std::string sha256_of(std::string_view bytes) { return sha256_hex(std::as_bytes(std::span(bytes))); }

const std::string& old_bytes() {
  static const std::string bytes = random_bytes(kFileBytes, 1);
  return bytes;
}
const std::string& new_bytes() {
  static const std::string bytes = random_bytes(kFileBytes, 2);
  return bytes;
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

DownloadLimits quick_limits() {
  DownloadLimits limits;
  limits.transfer = {.connect_ms = 2000, .stall_ms = 300};
  limits.chunk_bytes = kChunk;
  limits.max_chunks_per_request = 4;
  limits.n_connections = 4;
  limits.n_failures = 4;
  limits.first_pause_ms = 2;
  limits.max_pause_s = 2;
  return limits;
}

class DownloadFolder {
 public:
  DownloadFolder() {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ranges::replace(name, '/', '_');
    path_ = fs::path(testing::TempDir()) / ("zinc_download_" + name);
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~DownloadFolder() { fs::remove_all(path_); }
  DownloadFolder(const DownloadFolder&) = delete;
  DownloadFolder& operator=(const DownloadFolder&) = delete;
  fs::path target() const { return path_ / "model.gguf"; }
  fs::path part() const { return path_ / "model.gguf.part"; }
  fs::path journal() const { return path_ / "model.gguf.journal"; }

 private:
  fs::path path_;
};

// ---- One fault each ----

struct Fault {
  const char* name;
  FaultServer::Script serve;
  const char* error = nullptr;          // what the refusal says; nullptr: the download succeeds
  const std::string* result = nullptr;  // the bytes then; nullptr: the old ones
  bool pins_sha256 = false;             // the caller knows the hash
  uint64_t known_bytes = 0;             // the caller knows the size
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

ServedFile old_file() { return {.bytes = old_bytes()}; }
ServedFile new_file() { return {.bytes = new_bytes(), .etag = "\"v2\""}; }

// An honest server whose reply to some requests is spoilt.
using Spoil = std::function<void(const ServedRequest&, FaultReply&)>;
FaultServer::Script spoilt(Spoil spoil, ServedFile file = old_file()) {
  return [=](const ServedRequest& request) {
    FaultReply reply = honest_reply(request, file);
    spoil(request, reply);
    return reply;
  };
}
// The first `n` requests for pieces are spoilt; the probe and later pieces are not.
FaultServer::Script spoilt_first(int n, Spoil spoil, ServedFile file = old_file()) {
  return spoilt(
      [=, n_spoilt = std::make_shared<int>(0)](const ServedRequest& request, FaultReply& reply) {
        if (!request.is_probe() && (*n_spoilt)++ < n) spoil(request, reply);
      },
      std::move(file));
}
FaultServer::Script spoilt_pieces(Spoil spoil, ServedFile file = old_file()) {
  return spoilt_first(1 << 30, std::move(spoil), std::move(file));
}

FaultReply only_status(int status, std::vector<std::string> headers = {}) {
  return {.status = status, .headers = std::move(headers), .body = "a page about the status"};
}

FaultServer::Script redirecting(int n_hops, ServedFile file = old_file()) {
  return [=](const ServedRequest& request) {
    const std::string prefix = "/hop";
    const int hop = request.path.starts_with(prefix) ? std::stoi(request.path.substr(prefix.size())) : 0;
    if (hop >= n_hops) return honest_reply(request, file);
    return FaultReply{.status = 302, .headers = {fmt::format("Location: /hop{}", hop + 1)}};
  };
}

// The file is replaced after `n` requests; the new one is served honestly, or without regard for If-Range.
FaultServer::Script replaced_after(int n, bool honours_if_range, ServedFile before = old_file(),
                                   ServedFile after = new_file()) {
  return [=](ServedRequest request) {
    if (!honours_if_range) request.headers.erase("if-range");
    return honest_reply(request, request.number < n ? before : after);
  };
}

ServedFile dated_file(const std::string& bytes, const char* date) {
  return {.bytes = bytes, .etag = "", .last_modified = date};
}
ServedFile hashed_file() { return {.bytes = old_bytes(), .etag = "\"x\"", .sha256 = sha256_of(old_bytes())}; }

void flip_byte(FaultReply& reply) {
  if (!reply.body.empty()) reply.body[reply.body.size() / 2] ^= 1;
}

// No fault, in several honest ways.
void add_honest_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"an_honest_server", spoilt([](auto&, auto&) {})});
  add({"a_server_without_keep_alive", spoilt([](auto&, FaultReply& r) { r.closes = true; })});
  add({"early_hints_before_the_reply", [](const ServedRequest& request) {
         FaultReply honest = honest_reply(request, old_file());
         std::string raw = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\nHTTP/1.1 206 Partial\r\n";
         for (const std::string& header : honest.headers) raw += header + "\r\n";
         honest.raw = raw + fmt::format("Content-Length: {}\r\n\r\n{}", honest.body.size(), honest.body);
         return honest;
       }});
  add({"weak_validators_only", spoilt([](auto&, FaultReply&) {}, {.bytes = old_bytes(), .etag = "W/\"v1\""})});
  add({"no_validators_at_all", spoilt([](auto&, FaultReply&) {}, {.bytes = old_bytes(), .etag = ""})});
  add({"a_stated_hash_that_is_right", spoilt([](auto&, FaultReply&) {}, hashed_file())});
  add({"shorter_pieces_than_asked_for", [](ServedRequest request) {
         if (request.range) request.range->second = std::min(request.range->second, request.range->first + 40'000);
         return honest_reply(request, old_file());
       }});
  add({"a_slow_server", spoilt_pieces([](auto&, FaultReply& r) { r.piece_bytes = 16 << 10, r.piece_pause_ms = 2; })});
}

// Cuts.
void add_cut_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"cut_once_in_the_middle", spoilt_first(1, [](auto&, FaultReply& r) { r.cut_after = r.body.size() / 2; })});
  add({"cut_four_times_at_the_first_byte", spoilt_first(4, [](auto&, FaultReply& r) { r.cut_after = 0; })});
  add({"every_piece_cut_after_70000_bytes", spoilt_pieces([](auto&, FaultReply& r) {
         if (r.body.size() > 70'000) r.cut_after = 70'000;
       })});
  add({"always_cut_at_the_first_byte", spoilt_pieces([](auto&, FaultReply& r) { r.cut_after = 0; }), "times in a row"});
  add({"always_cut_after_one_byte", spoilt_pieces([](auto&, FaultReply& r) { r.cut_after = 1; }), "times in a row"});
  add({"a_reset_connection", spoilt_first(2, [](auto&, FaultReply& r) { r.cut_after = 1000, r.resets = true; })});
  add({"the_probe_is_cut_twice", spoilt([](const ServedRequest& q, FaultReply& r) {
         if (q.number < 2) r.raw = "";
       })});
  add({"a_head_cut_in_the_middle",
       spoilt_first(1, [](auto&, FaultReply& r) { r.raw = "HTTP/1.1 206 Partial\r\nContent-Ra"; })});
  add({"a_length_longer_than_the_body", spoilt_first(1, [](auto&, FaultReply& r) {
         r.headers.push_back(fmt::format("Content-Length: {}", r.body.size()));
         r.body.resize(r.body.size() - 100);
         r.cut_after = r.body.size();
       })});
  add({"a_length_shorter_than_the_range",
       spoilt_first(2, [](auto&, FaultReply& r) { r.body.resize(r.body.size() / 3); })});
}

// Stalls.
void add_stall_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"a_stall_before_the_head", spoilt_first(1, [](auto&, FaultReply& r) { r.stalls_before_head = true; })});
  add({"a_stall_before_the_first_byte", spoilt_first(1, [](auto&, FaultReply& r) { r.stall_after = 0; })});
  add({"a_stall_in_the_middle", spoilt_first(2, [](auto&, FaultReply& r) { r.stall_after = 5000; })});
  add({"the_probe_stalls_once",
       spoilt([](const ServedRequest& q, FaultReply& r) { r.stalls_before_head = q.number == 0; })});
  add({"every_piece_stalls", spoilt_pieces([](auto&, FaultReply& r) { r.stall_after = 0; }), "almost nothing"});
  add({"every_piece_trickles", spoilt_pieces([](auto&, FaultReply& r) { r.piece_bytes = 1, r.piece_pause_ms = 20; }),
       "almost nothing"});
}

// Wrong bytes.
void add_wrong_byte_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"a_bit_flipped_on_the_way", spoilt_first(
                                       1, [](auto&, FaultReply& r) { flip_byte(r); }, hashed_file())});
  add({"three_pieces_flipped_on_the_way", spoilt_first(3, [](auto&, FaultReply& r) { flip_byte(r); }), nullptr, nullptr,
       true});
  add({"every_piece_flipped", spoilt_pieces([](auto&, FaultReply& r) { flip_byte(r); }, hashed_file()),
       "nothing was kept"});
  add({"another_file_of_the_same_size", spoilt([](auto&, auto&) {}, new_file()), "nothing was kept", nullptr, true});
  add({"another_stated_hash", spoilt([](auto&, auto&) {}, {.bytes = new_bytes(), .sha256 = sha256_of(new_bytes())}),
       "it was replaced there", nullptr, true});
  add({"another_size_than_expected", spoilt([](auto&, auto&) {}), "expected 77", nullptr, false, 77});
  add({"a_wrong_file_without_ranges",
       [](ServedRequest request) {
         request.range.reset();
         return honest_reply(request, new_file());
       },
       "nothing was kept", nullptr, true});
}

// Redirects.
void add_redirect_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"a_redirect", redirecting(1)});
  add({"five_redirects", redirecting(5)});
  add({"redirects_without_end", redirecting(1 << 20), "redirects"});
  add({"a_redirect_to_a_local_file",
       [](auto&) { return FaultReply{.status = 302, .headers = {"Location: file:///etc/passwd"}}; }, "rotocol"});
  add({"a_redirect_to_nowhere",
       [](auto&) { return FaultReply{.status = 302, .headers = {"Location: http://127.0.0.1:1/"}}; },
       "times in a row"});
  add({"a_redirected_address_that_expires", [n = 0](const ServedRequest& request) mutable {
         if (request.path.starts_with("/signed")) {
           if (request.path != fmt::format("/signed{}", n)) return only_status(403);
           if (!request.is_probe() && request.number % 5 == 4) ++n;
           return honest_reply(request, old_file());
         }
         return FaultReply{.status = 302, .headers = {fmt::format("Location: /signed{}", n)}};
       }});
}

// Ranges.
void add_range_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"no_ranges", [](ServedRequest request) {
         request.range.reset();
         return honest_reply(request, old_file());
       }});
  add({"no_ranges_and_cut_twice", [](ServedRequest request) {
         request.range.reset();
         FaultReply reply = honest_reply(request, old_file());
         if (request.number == 1 || request.number == 2) reply.cut_after = 500'000;
         return reply;
       }});
  add({"ranges_given_up_halfway", [](ServedRequest request) {
         if (request.number >= 4) request.range.reset();
         return honest_reply(request, old_file());
       }});
  add({"another_range_than_asked_for", spoilt_first(2, [](const ServedRequest& q, FaultReply& r) {
         ServedRequest shifted = q;
         shifted.range = {q.range->first + 7, q.range->second};
         r = honest_reply(shifted, old_file());
       })});
  add({"always_another_range", spoilt_pieces([](const ServedRequest& q, FaultReply& r) {
         ServedRequest shifted = q;
         shifted.range = {0, q.range->second - q.range->first};
         r = honest_reply(shifted, old_file());
         r.drop_header("Content-Range")
             .headers.push_back(fmt::format("Content-Range: bytes 7-{}/{}", 6 + r.body.size(), kFileBytes));
       }),
       "where"});
  add({"a_range_without_saying_which", spoilt_first(1, [](auto&, FaultReply& r) { r.drop_header("Content-Range"); })});
  add({"a_range_that_makes_no_sense", spoilt_first(1, [](auto&, FaultReply& r) {
         r.drop_header("Content-Range").headers.push_back("Content-Range: bytes 9-3/x");
       })});
  add({"another_total_once", spoilt_first(1, [](const ServedRequest& q, FaultReply& r) {
         r.drop_header("Content-Range")
             .headers.push_back(
                 fmt::format("Content-Range: bytes {}-{}/{}", q.range->first, q.range->second - 1, kFileBytes + 1));
       })});
  add({"several_ranges_at_once", spoilt_first(1, [](auto&, FaultReply& r) {
         r.drop_header("Content-Range").headers.push_back("Content-Type: multipart/byteranges; boundary=x");
         r.body = "--x\r\nContent-Range: bytes 0-1/2\r\n\r\nab\r\n--x--";
       })});
  add({"more_bytes_than_asked_for",
       spoilt_first(2, [](auto&, FaultReply& r) { r.is_chunked = true, r.body += "more"; })});
  add({"not_satisfiable_once", spoilt_first(1, [](auto&, FaultReply& r) { r = only_status(416); })});
  add({"never_satisfiable", spoilt_pieces([](auto&, FaultReply& r) { r = only_status(416); }), "keeps changing"});
}

// Statuses.
void add_status_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"too_many_requests_once",
       spoilt_first(3, [](auto&, FaultReply& r) { r = only_status(429, {"Retry-After: 0"}); })});
  add({"wait_one_second", spoilt_first(1, [](auto&, FaultReply& r) { r = only_status(429, {"Retry-After: 1"}); })});
  add({"wait_until_a_date", spoilt_first(1, [](auto&, FaultReply& r) {
         r = only_status(503, {"Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"});
       })});
  add({"wait_for_hours", spoilt_first(1, [](auto&, FaultReply& r) { r = only_status(503, {"Retry-After: 9999"}); }),
       "9999 s"});
  add({"the_probe_is_told_to_wait_for_hours", [](auto&) { return only_status(429, {"Retry-After: 9999"}); }, "9999 s"});
  add({"only_one_connection_at_a_time", [n_pieces = 0](const ServedRequest& request) mutable {
         const bool is_refused = !request.is_probe() && n_pieces++ % 3 != 0;
         return is_refused ? only_status(503) : honest_reply(request, old_file());
       }});
  add({"an_error_of_the_server", spoilt_first(2, [](auto&, FaultReply& r) { r = only_status(500); })});
  add({"a_bad_gateway_with_a_page", spoilt_first(1, [](auto&, FaultReply& r) { r = only_status(502); })});
  add({"always_unavailable", [](auto&) { return only_status(503); }, "HTTP 503"});
  add({"not_found", [](auto&) { return only_status(404); }, "no such file"});
  add({"not_allowed", [](auto&) { return only_status(401); }, "HF_TOKEN"});
  add({"gated", [](auto&) { return only_status(403); }, "HF_TOKEN"});
  add({"not_found_halfway", spoilt_pieces([](const ServedRequest& q, FaultReply& r) {
         if (q.number > 3) r = only_status(404);
       }),
       "no such file"});
  add({"a_teapot", [](auto&) { return only_status(418); }, "HTTP 418"});
  add({"no_http_at_all", [](auto&) { return FaultReply{.raw = "SSH-2.0-server\r\n"}; }, "HTTP/0.9"});
}

// Changes.
void add_change_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"replaced_halfway", replaced_after(3, true), nullptr, &new_bytes()});
  add({"replaced_halfway_and_if_range_ignored", replaced_after(3, false), nullptr, &new_bytes()});
  add({"replaced_halfway_known_by_its_date",
       replaced_after(3, true, dated_file(old_bytes(), "Wed, 21 Oct 2015 07:28:00 GMT"),
                      dated_file(new_bytes(), "Thu, 22 Oct 2015 07:28:00 GMT")),
       nullptr, &new_bytes()});
  add({"replaced_halfway_by_a_shorter_one",
       replaced_after(3, false, old_file(), {.bytes = old_bytes().substr(0, 5000), .etag = "\"s\""}), nullptr,
       nullptr});
  add({"replaced_halfway_though_pinned", replaced_after(3, true), "nothing was kept", nullptr, true});
  add({"replaced_at_every_request",
       [](const ServedRequest& request) {
         return honest_reply(request, {.bytes = old_bytes(), .etag = fmt::format("\"v{}\"", request.number)});
       },
       "keeps changing"});
}

// Lengths and encodings.
void add_length_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"an_empty_file", spoilt([](auto&, auto&) {}, {.bytes = ""}), "empty"});
  add({"no_length",
       [](ServedRequest request) {
         request.range.reset();
         FaultReply reply = honest_reply(request, old_file());
         reply.is_chunked = true;
         return reply;
       },
       "how long"});
  add({"no_length_but_a_known_size",
       [](ServedRequest request) {
         request.range.reset();
         FaultReply reply = honest_reply(request, old_file());
         reply.is_chunked = true;
         return reply;
       },
       nullptr, nullptr, true, kFileBytes});
  add({"a_length_no_disk_holds", spoilt([](auto&, FaultReply& r) {
         r.drop_header("Content-Range").headers.push_back("Content-Range: bytes 0-0/1152921504606846976");
       }),
       "free some space"});
  add({"everything_compressed", spoilt([](auto&, FaultReply& r) { r.headers.push_back("Content-Encoding: gzip"); }),
       "compressed"});
  add({"one_piece_compressed",
       spoilt_first(1, [](auto&, FaultReply& r) { r.headers.push_back("Content-Encoding: gzip"); })});
}

std::vector<Fault> all_faults() {
  std::vector<Fault> faults;
  add_honest_faults(faults);
  add_cut_faults(faults);
  add_stall_faults(faults);
  add_wrong_byte_faults(faults);
  add_redirect_faults(faults);
  add_range_faults(faults);
  add_status_faults(faults);
  add_change_faults(faults);
  add_length_faults(faults);
  return faults;
}

class FaultyDownload : public testing::TestWithParam<Fault> {};

TEST_P(FaultyDownload, ends_with_the_right_file_or_with_none) {
  const Fault& fault = GetParam();
  const DownloadFolder folder;
  FaultServer server(fault.serve);
  const DownloadRequest request{.url = server.url("/model.gguf"),
                                .bearer_token = "",
                                .target = folder.target(),
                                .n_bytes = fault.known_bytes,
                                .sha256 = fault.pins_sha256 ? sha256_of(old_bytes()) : ""};
  const Result<Downloaded> done = download_file(request, quick_limits(), {});
  if (fault.error) {
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().message.find(fault.error), std::string::npos) << done.error().message;
    EXPECT_FALSE(fs::exists(folder.target()));
    return;
  }
  ASSERT_TRUE(done.ok()) << done.error().message;
  std::string wanted = fault.result ? *fault.result : old_bytes();
  if (std::string_view(fault.name).ends_with("shorter_one")) wanted.resize(5000);
  EXPECT_TRUE(contents(folder.target()) == wanted) << "the bytes differ";
  EXPECT_EQ(done.value().sha256, sha256_of(wanted));
  EXPECT_EQ(done.value().n_bytes, wanted.size());
  EXPECT_FALSE(PartFile::exists(folder.target()));
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultyDownload, testing::ValuesIn(all_faults()),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- Going on ----

class ResumedDownload : public testing::Test {
 protected:
  Result<Downloaded> fetch(const std::string& url, const DownloadHooks& hooks = {}, const std::string& sha256 = "") {
    return download_file({url, "", folder_.target(), 0, sha256}, quick_limits(), hooks);
  }
  // Fetches until about `n_bytes` are there, and stops as Ctrl-C would.
  void fetch_some(const std::string& url, uint64_t n_bytes, const std::string& sha256 = "") {
    uint64_t n_done = 0;
    const DownloadHooks hooks{.progress = [&](const DownloadProgress& p) { n_done = p.n_done; },
                              .say = [](std::string_view) {},
                              .cancelled = [&] { return n_done >= n_bytes; }};
    const Result<Downloaded> stopped = fetch(url, hooks, sha256);
    ASSERT_FALSE(stopped.ok());
    EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
    EXPECT_FALSE(fs::exists(folder_.target()));
  }
  // Bytes the journal vouches for.
  uint64_t n_kept() const {
    const std::optional<Journal> journal = parse_journal(contents(folder_.journal()));
    if (!journal) return 0;
    uint64_t n_bytes = 0;
    for (uint64_t c = 0; c < journal->chunks.size(); ++c) {
      if (journal->chunks[c]) n_bytes += std::min(kChunk, kFileBytes - c * kChunk);
    }
    return n_bytes;
  }
  // Slow enough that a stop comes halfway.
  FaultServer::Script slow(ServedFile file = old_file()) const {
    return spoilt_pieces([](auto&, FaultReply& r) { r.piece_bytes = 8 << 10, r.piece_pause_ms = 5; }, std::move(file));
  }
  DownloadFolder folder_;
};

TEST_F(ResumedDownload, fetches_only_what_is_missing) {
  FaultServer server(slow());
  fetch_some(server.url("/m"), kFileBytes / 2);
  const uint64_t n_there = n_kept();
  EXPECT_GT(n_there, kFileBytes / 4);
  const Result<Downloaded> done = fetch(server.url("/m"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, kFileBytes - n_there);
  EXPECT_TRUE(contents(folder_.target()) == old_bytes());
}

TEST_F(ResumedDownload, a_chunk_damaged_on_the_disk_is_fetched_again_and_no_other) {
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

TEST_F(ResumedDownload, a_journal_cut_at_any_byte_costs_at_most_the_chunks_it_no_longer_names) {
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

TEST_F(ResumedDownload, without_validators_a_known_hash_lets_it_go_on) {
  const ServedFile bare{.bytes = old_bytes(), .etag = ""};
  FaultServer server(slow(bare));
  fetch_some(server.url("/m"), kFileBytes / 2, sha256_of(old_bytes()));
  const uint64_t n_there = n_kept();
  const Result<Downloaded> done = fetch(server.url("/m"), {}, sha256_of(old_bytes()));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, kFileBytes - n_there);
}

TEST_F(ResumedDownload, a_server_that_dies_halfway_costs_nothing_that_was_whole) {
  FaultServer dying([n = 0](const ServedRequest& request) mutable {
    FaultReply reply = honest_reply(request, old_file());
    if (++n > 4) reply.raw = "";
    return reply;
  });
  const Result<Downloaded> broken = fetch(dying.url("/m"));
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.error().message.find("goes on from there"), std::string::npos) << broken.error().message;
  const uint64_t n_there = n_kept();
  EXPECT_GT(n_there, 0u);
  FaultServer server([](const ServedRequest& request) { return honest_reply(request, old_file()); });
  const Result<Downloaded> done = fetch(server.url("/m"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, kFileBytes - n_there);
}

TEST_F(ResumedDownload, a_bit_flipped_on_the_way_is_found_by_one_more_pass) {
  FaultServer server(spoilt_first(
      1, [](auto&, FaultReply& r) { flip_byte(r); }, hashed_file()));
  const Result<Downloaded> done = fetch(server.url("/m"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(done.value().n_fetched, 2 * kFileBytes);
  EXPECT_TRUE(done.value().was_stated);
}

TEST_F(ResumedDownload, a_file_size_limit_is_an_error_and_not_the_end_of_the_program) {
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

TEST_F(ResumedDownload, a_token_goes_to_its_own_host_only) {
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

TEST_F(ResumedDownload, a_redirect_on_the_same_host_keeps_the_token) {
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

TEST(SameOrigin, is_scheme_host_and_port) {
  EXPECT_TRUE(is_same_origin("https://Host/a", "https://host/b?c"));
  EXPECT_TRUE(is_same_origin("https://host", "https://host/b"));
  EXPECT_FALSE(is_same_origin("https://host/a", "http://host/a"));
  EXPECT_FALSE(is_same_origin("https://host/a", "https://host:444/a"));
  EXPECT_FALSE(is_same_origin("https://host/a", "https://host.example/a"));
  EXPECT_FALSE(is_same_origin("", ""));
}

TEST(ContentRange, is_read_strictly) {
  EXPECT_EQ(parse_content_range("bytes 0-99/200"), (ContentRange{0, 100, 200}));
  EXPECT_EQ(parse_content_range("Bytes 5-5/*"), (ContentRange{5, 6, std::nullopt}));
  EXPECT_EQ(parse_content_range("bytes */0"), (ContentRange{0, 0, 0}));
  for (const char* wrong : {"", "bytes", "bytes 1-0/5", "bytes 0-5/5", "bytes -1-2/5", "bytes 0-1/x", "items 0-1/2",
                            "bytes 0-18446744073709551615/*", "bytes 0-1"}) {
    EXPECT_EQ(parse_content_range(wrong), std::nullopt) << wrong;
  }
}

TEST(ShownUrl, holds_no_secret) {
  EXPECT_EQ(shown_url("https://user:password@host/a/b?token=x"), "https://host/a/b");
  EXPECT_EQ(shown_url("https://host/a@b"), "https://host/a@b");
}

}  // namespace
}  // namespace zinc
