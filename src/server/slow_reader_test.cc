// Clients that read or write slowly, or not at all: they are dropped, and others do not wait for them. Every wait ends
// with an event (a log line, a count of the engine, the end of the connection), not with a time.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>

#include "tests/support/http_server_fixture.h"

namespace zinc {
namespace {

using SlowReader = HttpServerTest;

constexpr std::string_view kAskLong = "GET /long HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

TEST_F(SlowReader, last_response_is_complete_after_a_half_close) {
  size_t n_logged = 0;
  for (int n_requests : {60, 70, 80, 90, 100}) {
    TestClient one = client();
    std::string all;
    for (int i = 1; i < n_requests; ++i) all += "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    one.send(all + "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    n_logged += static_cast<size_t>(n_requests);
    ASSERT_TRUE(eventually([&] {  // until the last response is written, and waits behind the others
      one.read_available();
      return log().size() == n_logged;
    }));
    one.socket().shutdown(TestClient::tcp::socket::shutdown_send);
    const std::string got = one.read_to_end();
    EXPECT_EQ(n_ok(got), static_cast<size_t>(n_requests));
    EXPECT_TRUE(got.ends_with("}")) << got.substr(got.size() - 20);
  }
}

TEST_F(SlowReader, slow_reader_of_a_stream_is_dropped_and_cancelled) {
  ServerLimits limits;
  limits.pending_bytes = 16 << 10;
  restart(limits);
  TestClient slow = slow_client();
  // Log-probabilities of several choices fill the socket buffers within few steps of the engine.
  slow.send(post("/v1/chat/completions",
                 {{"messages", json::array{json::object{{"role", "user"}, {"content", "FLOOD[[lorem ipsum]]"}}}},
                  {"stream", true},
                  {"n", 4},
                  {"logprobs", true},
                  {"top_logprobs", 20}}));
  ASSERT_TRUE(eventually([&] { return scripted_.engine().n_cancelled() > 0; }));
  EXPECT_TRUE(scripted_.engine().wait_until_idle());
  TestClient other = client();  // other clients are not affected
  EXPECT_NE(other.send(chat("SAY[[fine]]", false)).read_until("usage").find("fine"), std::string::npos);
}

TEST_F(SlowReader, unread_responses_have_a_total_limit) {
  ServerLimits limits;
  limits.all_unread_bytes = kLongBytes * 5 / 2;
  restart(limits);
  const auto n_lines = [&](const char* field) {
    const std::vector<json::object> lines = log();
    return std::ranges::count_if(lines, [&](const json::object& line) { return line.contains(field); });
  };
  const auto n_before = n_lines("path");
  std::deque<TestClient> open;
  for (int i = 1; i <= 3; ++i) {
    open.emplace_back(server_->port()).send(kAskLong);
    ASSERT_TRUE(eventually([&] { return n_lines("path") == n_before + i; }));
  }
  ASSERT_TRUE(eventually([&] { return n_lines("dropped") == 1; }));
  // The one without progress for the longest time; which one that is depends on when the kernel last grew its buffers.
  const auto is_whole = [](TestClient& one) { return one.read_to_end().size() > kLongBytes; };
  EXPECT_EQ(std::ranges::count_if(open, is_whole), 2);
}

TEST_F(SlowReader, client_that_reads_nothing_is_dropped_after_the_write_time) {
  ServerLimits limits;
  limits.write_time = std::chrono::seconds(1);
  restart(limits);
  TestClient slow = slow_client();
  slow.send(kAskLong);
  ASSERT_TRUE(eventually([&] { return log().size() == 1; }));
  const auto n_open = std::make_shared<std::atomic<size_t>>(1);
  ASSERT_TRUE(eventually([&] {
    server_->post([this, n_open] { *n_open = server_->n_connections(); });
    return *n_open == 0;
  })) << "in proportion to its length it would have more than three minutes";
}

TEST_F(SlowReader, one_large_event_does_not_count_as_a_slow_client) {
  ServerLimits limits;
  limits.pending_bytes = 1 << 10;
  restart(limits);
  // The first two events of a response echo the request.
  json::object notes;
  for (int i = 0; i < 16; ++i) notes[std::to_string(i)] = std::string(512, 'i');
  const std::string request = post("/v1/responses", {{"input", "SAY[[fine]]"}, {"metadata", notes}, {"stream", true}});
  const std::string got = client().send(request).read_until("response.completed");
  EXPECT_NE(got.find("fine"), std::string::npos);
}

TEST_F(SlowReader, pipelined_requests_wait_while_responses_are_not_read) {
  ServerLimits limits;
  limits.pending_bytes = 64 << 10;
  restart(limits);
  constexpr int kRequests = 500;
  TestClient one = client();
  std::thread writer([&] {
    std::string all;
    for (int i = 0; i < kRequests; ++i) all += "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    one.send(all + "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  });
  // Meanwhile other clients are served, and responses stay within the socket buffers.
  for (int i = 0; i < 50; ++i)
    client().send("GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").read_to_end();
  EXPECT_LT(log().size(), static_cast<size_t>(kRequests));
  const std::string got = one.read_to_end();
  writer.join();
  EXPECT_EQ(n_ok(got), static_cast<size_t>(kRequests) + 1);
}

TEST_F(SlowReader, client_that_pipelines_too_much_during_a_generation_is_dropped) {
  TestClient one = client();
  const std::string body = R"({"messages":[{"role":"user","content":"WAIT[[w]]"}]})";
  one.send(fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                       body.size(), body));
  one.send(std::string(64 << 10, 'x'));
  EXPECT_EQ(one.read_to_end(), "");
}

TEST_F(SlowReader, trickling_header_times_out) {
  ServerLimits limits;
  limits.header_time = std::chrono::seconds(1);
  restart(limits);
  TestClient slow = client();
  slow.send("GET / HTTP/1.1\r\n");
  std::atomic<bool> over = false;
  std::thread trickle([&] {
    while (!over) {
      slow.send("X: y\r\n");
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  EXPECT_EQ(slow.read_to_end(), "");
  over = true;
  trickle.join();
}

}  // namespace
}  // namespace zinc
