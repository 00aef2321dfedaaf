// One server fault per test: a download ends in bounded time, with the right file or none.
#include <gtest/gtest.h>

#include <atomic>

#include "hub/partial_download.h"
#include "tests/support/download_fixture.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

struct Fault {
  const char* name;
  FaultServer::Script serve;
  const char* error = nullptr;          // expected in the error; nullptr: the download succeeds
  const std::string* result = nullptr;  // expected bytes; nullptr: old_bytes()
  bool pins_sha256 = false;             // the caller knows the hash
  uint64_t known_bytes = 0;             // the caller knows the size
};

void PrintTo(const Fault& fault, std::ostream* out) { *out << fault.name; }

// No fault: variants of correct servers.
void add_honest_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"an_honest_server", with_fault([](auto&, auto&) {})});
  add({"a_server_without_keep_alive", with_fault([](auto&, FaultReply& r) { r.closes = true; })});
  add({"early_hints_before_the_reply", [](const ServedRequest& request) {
         FaultReply honest = honest_reply(request, old_file());
         std::string raw = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>\r\n\r\nHTTP/1.1 206 Partial\r\n";
         for (const std::string& header : honest.headers) raw += header + "\r\n";
         honest.raw = raw + fmt::format("Content-Length: {}\r\n\r\n{}", honest.body.size(), honest.body);
         return honest;
       }});
  add({"weak_validators_only", with_fault([](auto&, FaultReply&) {}, {.bytes = old_bytes(), .etag = "W/\"v1\""})});
  add({"no_validators_at_all", with_fault([](auto&, FaultReply&) {}, {.bytes = old_bytes(), .etag = ""})});
  add({"a_stated_hash_that_is_right", with_fault([](auto&, FaultReply&) {}, hashed_file())});
  add({"shorter_pieces_than_asked_for", [](ServedRequest request) {
         if (request.range) request.range->second = std::min(request.range->second, request.range->first + 40'000);
         return honest_reply(request, old_file());
       }});
  add({"a_slow_server",
       with_ranges_faulty([](auto&, FaultReply& r) { r.piece_bytes = 16 << 10, r.piece_pause_ms = 2; })});
}

// Cuts.
void add_cut_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"cut_once_in_the_middle", with_first_faulty(1, [](auto&, FaultReply& r) { r.cut_after = r.body.size() / 2; })});
  add({"cut_four_times_at_the_first_byte", with_first_faulty(4, [](auto&, FaultReply& r) { r.cut_after = 0; })});
  add({"every_piece_cut_after_70000_bytes", with_ranges_faulty([](auto&, FaultReply& r) {
         if (r.body.size() > 70'000) r.cut_after = 70'000;
       })});
  add({"always_cut_at_the_first_byte", with_ranges_faulty([](auto&, FaultReply& r) { r.cut_after = 0; }),
       "times in a row"});
  add({"always_cut_after_one_byte", with_ranges_faulty([](auto&, FaultReply& r) { r.cut_after = 1; }),
       "times in a row"});
  add({"a_reset_connection", with_first_faulty(2, [](auto&, FaultReply& r) { r.cut_after = 1000, r.resets = true; })});
  add({"the_probe_is_cut_twice", with_fault([](const ServedRequest& q, FaultReply& r) {
         if (q.number < 2) r.raw = "";
       })});
  add({"a_head_cut_in_the_middle",
       with_first_faulty(1, [](auto&, FaultReply& r) { r.raw = "HTTP/1.1 206 Partial\r\nContent-Ra"; })});
  add({"a_length_longer_than_the_body", with_first_faulty(1, [](auto&, FaultReply& r) {
         r.headers.push_back(fmt::format("Content-Length: {}", r.body.size()));
         r.body.resize(r.body.size() - 100);
         r.cut_after = r.body.size();
       })});
  add({"a_length_shorter_than_the_range",
       with_first_faulty(2, [](auto&, FaultReply& r) { r.body.resize(r.body.size() / 3); })});
}

// Stalls.
void add_stall_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"a_stall_before_the_head", with_first_faulty(1, [](auto&, FaultReply& r) { r.stalls_before_head = true; })});
  add({"a_stall_before_the_first_byte", with_first_faulty(1, [](auto&, FaultReply& r) { r.stall_after = 0; })});
  add({"a_stall_in_the_middle", with_first_faulty(2, [](auto&, FaultReply& r) { r.stall_after = 5000; })});
  add({"the_probe_stalls_once",
       with_fault([](const ServedRequest& q, FaultReply& r) { r.stalls_before_head = q.number == 0; })});
  add({"every_piece_stalls", with_ranges_faulty([](auto&, FaultReply& r) { r.stall_after = 0; }),
       "the connection stalled"});
  add({"every_piece_trickles",
       with_ranges_faulty([](auto&, FaultReply& r) { r.piece_bytes = 1, r.piece_pause_ms = 20; }),
       "the connection stalled"});
}

// Wrong bytes.
void add_wrong_byte_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"a_bit_flipped_on_the_way", with_first_faulty(
                                       1, [](auto&, FaultReply& r) { flip_byte(r); }, hashed_file())});
  add({"a_bit_flipped_on_the_way_without_ranges", [](ServedRequest request) {
         request.range.reset();
         FaultReply reply = honest_reply(request, hashed_file());
         if (request.number == 1) flip_byte(reply);
         return reply;
       }});
  add({"three_pieces_flipped_on_the_way", with_first_faulty(3, [](auto&, FaultReply& r) { flip_byte(r); }), nullptr,
       nullptr, true});
  add({"every_piece_flipped", with_ranges_faulty([](auto&, FaultReply& r) { flip_byte(r); }, hashed_file()),
       "and was deleted"});
  add({"another_file_of_the_same_size", with_fault([](auto&, auto&) {}, new_file()), "and was deleted", nullptr, true});
  add({"another_stated_hash", with_fault([](auto&, auto&) {}, {.bytes = new_bytes(), .sha256 = sha256_of(new_bytes())}),
       "was replaced on the server", nullptr, true});
  add({"another_size_than_expected", with_fault([](auto&, auto&) {}), "use its source as the name", nullptr, false,
       77});
  add({"a_wrong_file_without_ranges",
       [](ServedRequest request) {
         request.range.reset();
         return honest_reply(request, new_file());
       },
       "and was deleted", nullptr, true});
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
  add({"a_hash_of_the_redirects_target_over_the_one_stated_before",
       [](const ServedRequest& request) {
         if (request.path.starts_with("/blob")) {
           return honest_reply(request, {.bytes = new_bytes(), .sha256 = sha256_of(new_bytes())});
         }
         return FaultReply{.status = 302,
                           .headers = {"Location: /blob", "X-Linked-Etag: \"" + sha256_of(old_bytes()) + "\""}};
       },
       "keeps changing"});
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
  add({"another_range_than_asked_for", with_first_faulty(2, [](const ServedRequest& q, FaultReply& r) {
         ServedRequest shifted = q;
         shifted.range = {q.range->first + 7, q.range->second};
         r = honest_reply(shifted, old_file());
       })});
  add({"always_another_range", with_ranges_faulty([](const ServedRequest& q, FaultReply& r) {
         ServedRequest shifted = q;
         shifted.range = {0, q.range->second - q.range->first};
         r = honest_reply(shifted, old_file());
         r.drop_header("Content-Range")
             .headers.push_back(fmt::format("Content-Range: bytes 7-{}/{}", 6 + r.body.size(), kFileBytes));
       }),
       "expected them to start at"});
  add({"a_range_without_saying_which",
       with_first_faulty(1, [](auto&, FaultReply& r) { r.drop_header("Content-Range"); })});
  add({"a_range_that_makes_no_sense", with_first_faulty(1, [](auto&, FaultReply& r) {
         r.drop_header("Content-Range").headers.push_back("Content-Range: bytes 9-3/x");
       })});
  add({"another_total_once", with_first_faulty(1, [](const ServedRequest& q, FaultReply& r) {
         r.drop_header("Content-Range")
             .headers.push_back(
                 fmt::format("Content-Range: bytes {}-{}/{}", q.range->first, q.range->second - 1, kFileBytes + 1));
       })});
  add({"several_ranges_at_once", with_first_faulty(1, [](auto&, FaultReply& r) {
         r.drop_header("Content-Range").headers.push_back("Content-Type: multipart/byteranges; boundary=x");
         r.body = "--x\r\nContent-Range: bytes 0-1/2\r\n\r\nab\r\n--x--";
       })});
  add({"more_bytes_than_asked_for",
       with_first_faulty(2, [](auto&, FaultReply& r) { r.is_chunked = true, r.body += "more"; })});
  add({"not_satisfiable_once", with_first_faulty(1, [](auto&, FaultReply& r) { r = only_status(416); })});
  add({"never_satisfiable", with_ranges_faulty([](auto&, FaultReply& r) { r = only_status(416); }), "keeps changing"});
}

// Statuses.
void add_status_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"too_many_requests_once",
       with_first_faulty(3, [](auto&, FaultReply& r) { r = only_status(429, {"Retry-After: 0"}); })});
  add({"wait_one_second",
       with_first_faulty(1, [](auto&, FaultReply& r) { r = only_status(429, {"Retry-After: 1"}); })});
  add({"wait_until_a_date", with_first_faulty(1, [](auto&, FaultReply& r) {
         r = only_status(503, {"Retry-After: Wed, 21 Oct 2015 07:28:00 GMT"});
       })});
  add({"wait_for_hours",
       with_first_faulty(1, [](auto&, FaultReply& r) { r = only_status(503, {"Retry-After: 9999"}); }), "9999 s"});
  add({"the_probe_is_told_to_wait_for_hours", [](auto&) { return only_status(429, {"Retry-After: 9999"}); }, "9999 s"});
  add({"only_one_connection_at_a_time", [n_pieces = 0](const ServedRequest& request) mutable {
         const bool is_rejected = !request.is_probe() && n_pieces++ % 3 != 0;
         return is_rejected ? only_status(503) : honest_reply(request, old_file());
       }});
  add({"an_error_of_the_server", with_first_faulty(2, [](auto&, FaultReply& r) { r = only_status(500); })});
  add({"a_bad_gateway_with_a_page", with_first_faulty(1, [](auto&, FaultReply& r) { r = only_status(502); })});
  add({"always_unavailable", [](auto&) { return only_status(503); }, "HTTP 503"});
  add({"not_found", [](auto&) { return only_status(404); }, "no such file"});
  add({"not_allowed", [](auto&) { return only_status(401); }, "HF_TOKEN"});
  add({"gated", [](auto&) { return only_status(403); }, "HF_TOKEN"});
  add({"not_found_halfway", with_ranges_faulty([](const ServedRequest& q, FaultReply& r) {
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
  add({"replaced_halfway_though_pinned", replaced_after(3, true), "and was deleted", nullptr, true});
  add({"replaced_at_every_request",
       [](const ServedRequest& request) {
         return honest_reply(request, {.bytes = old_bytes(), .etag = fmt::format("\"v{}\"", request.number)});
       },
       "keeps changing"});
}

// Counts range requests since the last probe: by the sixth, some chunks are complete.
class Sixth {
 public:
  bool is_it(const ServedRequest& request) {
    n_pieces_ = request.is_probe() ? 0 : n_pieces_ + 1;
    return n_pieces_ == 6;
  }

 private:
  int n_pieces_ = 0;
};

// Another version from each sixth range request on, cyclically.
FaultServer::Script replaced_at_each_sixth(int n_versions) {
  return [=, sixth = Sixth(), version = 0](const ServedRequest& request) mutable {
    if (sixth.is_it(request)) version = (version + 1) % n_versions;
    return honest_reply(request, {.bytes = old_bytes(), .etag = fmt::format("\"v{}\"", version)});
  };
}

// Endless changes with some progress in between.
void add_endless_change_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"replaced_again_and_again", replaced_at_each_sixth(1 << 20), "keeps changing"});
  add({"two_mirrors_with_validators_of_their_own", replaced_at_each_sixth(2), "keeps changing"});
  add({"two_mirrors_of_a_known_file", replaced_at_each_sixth(2), nullptr, nullptr, true});
  add({"no_validators_and_now_and_then_not_satisfiable",
       [sixth = Sixth()](const ServedRequest& request) mutable {
         return sixth.is_it(request) ? only_status(416) : honest_reply(request, {.bytes = old_bytes(), .etag = ""});
       },
       "keeps changing"});
}

// Lengths and encodings.
void add_length_faults(std::vector<Fault>& faults) {
  const auto add = [&](Fault fault) { faults.push_back(std::move(fault)); };
  add({"an_empty_file", with_fault([](auto&, auto&) {}, {.bytes = ""}), "empty"});
  add({"no_length",
       [](ServedRequest request) {
         request.range.reset();
         FaultReply reply = honest_reply(request, old_file());
         reply.is_chunked = true;
         return reply;
       },
       "does not state the file's size"});
  add({"no_length_but_a_known_size",
       [](ServedRequest request) {
         request.range.reset();
         FaultReply reply = honest_reply(request, old_file());
         reply.is_chunked = true;
         return reply;
       },
       nullptr, nullptr, true, kFileBytes});
  add({"a_length_no_disk_holds", with_fault([](auto&, FaultReply& r) {
         r.drop_header("Content-Range").headers.push_back("Content-Range: bytes 0-0/1152921504606846976");
       }),
       "free some space"});
  add({"everything_compressed", with_fault([](auto&, FaultReply& r) { r.headers.push_back("Content-Encoding: gzip"); }),
       "compressed"});
  add({"one_piece_compressed",
       with_first_faulty(1, [](auto&, FaultReply& r) { r.headers.push_back("Content-Encoding: gzip"); })});
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
  add_endless_change_faults(faults);
  add_length_faults(faults);
  return faults;
}

class FaultyDownload : public testing::TestWithParam<Fault> {};

TEST_P(FaultyDownload, ends_with_the_right_file_or_none) {
  const Fault& fault = GetParam();
  const DownloadFolder folder;
  FaultServer server(fault.serve);
  const DownloadRequest request{.url = server.url("/model.gguf"),
                                .bearer_token = "",
                                .target = folder.target(),
                                .n_bytes = fault.known_bytes,
                                .sha256 = fault.pins_sha256 ? sha256_of(old_bytes()) : ""};
  DownloadLimits limits = quick_limits();
  const std::string_view name = fault.name;
  if (name.find("stall") != name.npos || name.find("trickle") != name.npos) limits.transfer.stall_ms = 300;
  const Result<Downloaded> done = download_file(request, limits, {});
  if (fault.error) {
    ASSERT_FALSE(done.ok());
    EXPECT_NE(done.error().message.find(fault.error), std::string::npos) << done.error().message;
    EXPECT_FALSE(fs::exists(folder.target()));
    return;
  }
  ASSERT_TRUE(done.ok()) << done.error().message;
  std::string wanted = fault.result ? *fault.result : old_bytes();
  if (name.ends_with("shorter_one")) wanted.resize(5000);
  EXPECT_TRUE(contents(folder.target()) == wanted) << "the bytes differ";
  EXPECT_EQ(done.value().sha256, sha256_of(wanted));
  EXPECT_EQ(done.value().n_bytes, wanted.size());
  EXPECT_FALSE(fs::exists(folder.part()));
}

TEST(Download, probe_does_not_wait_for_an_endless_body) {
  const DownloadFolder folder;
  FaultServer server(with_fault([](const ServedRequest& request, FaultReply& reply) {
    if (!request.is_probe()) return;
    reply.body.resize(32 << 20);  // for half a minute
    reply.piece_bytes = 64 << 10, reply.piece_pause_ms = 60;
  }));
  const auto started = std::chrono::steady_clock::now();
  const Result<Downloaded> done =
      download_file({server.url("/model.gguf"), "", folder.target(), 0, ""}, quick_limits(), {});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(20));
}

TEST(UnansweredDownload, is_retried_up_to_the_limit_with_one_message) {
  const DownloadFolder folder;
  std::atomic<int> n_requests = 0;
  FaultServer server([&](const ServedRequest&) {
    ++n_requests;
    return only_status(503);
  });
  DownloadLimits limits = quick_limits();
  limits.n_failures = 3;
  std::vector<std::string> said;
  DownloadHooks hooks;
  hooks.on_message = [&](std::string_view line) { said.emplace_back(line); };
  const DownloadRequest request{
      .url = server.url("/model.gguf"), .bearer_token = "", .target = folder.target(), .n_bytes = 0, .sha256 = ""};
  const Result<Downloaded> done = download_file(request, limits, hooks);
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("3 times in a row"), std::string::npos) << done.error().message;
  EXPECT_EQ(n_requests, 3);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("trying again"), std::string::npos) << said[0];
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultyDownload, testing::ValuesIn(all_faults()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace zinc
