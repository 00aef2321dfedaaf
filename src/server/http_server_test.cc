// The server over real sockets with a scripted engine: client behavior on the connection level.
#include "server/http_server.h"

#include <gtest/gtest.h>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read.hpp>

#include <signal.h>
#include <unistd.h>

#include <deque>
#include <future>

#include "tests/support/http_server_fixture.h"
#include "tests/support/test_files.h"

namespace zinc {
namespace {

using boost::asio::ip::tcp;

TEST_F(HttpServerTest, pipelined_requests_are_answered_in_order) {
  TestClient one = client();
  one.send(chat("SAY[[first]]", false) + chat("SAY[[second]]", true) + chat("SAY[[third]]", false));
  const std::string got = one.read_until("third");
  EXPECT_LT(got.find("first"), got.find("data: [DONE]"));
  EXPECT_LT(got.find("data: [DONE]"), got.find("third"));
  EXPECT_NE(got.find("Transfer-Encoding: chunked"), std::string::npos);
}

TEST_F(HttpServerTest, thousands_of_pipelined_requests_are_all_answered) {
  constexpr int kRequests = 1000;
  TestClient one = client();
  std::thread writer([&] {
    std::string all;
    for (int i = 0; i < kRequests; ++i) all += "GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n";
    one.send(all + "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  });
  const std::string got = one.read_to_end();
  writer.join();
  EXPECT_EQ(n_ok(got), static_cast<size_t>(kRequests) + 1);
}

TEST_F(HttpServerTest, requests_sent_before_a_half_close_are_answered) {
  constexpr int kRequests = 50;
  TestClient one = client();
  std::string all;
  for (int i = 0; i < kRequests; ++i) all += "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
  one.send(all);
  one.socket().shutdown(tcp::socket::shutdown_send);
  const std::string got = one.read_to_end();
  EXPECT_EQ(n_ok(got), static_cast<size_t>(kRequests));
}

// The request is too long for the event loop and waits for the worker thread.
TEST_F(HttpServerTest, queued_long_request_of_a_disconnected_client_is_dropped) {
  const std::string request = post(
      "/v1/completions",
      {{"prompt", "SAY[[hello]]"}, {"max_tokens", 50}, {"user", std::string(2 * ServerLimits().worker_bytes, 'u')}});
  std::promise<void> release;
  server_->work([held = release.get_future().share()] { held.wait(); });
  client().send(request).close();
  const bool has_left = eventually([&] { return !log().empty(); });
  release.set_value();
  ASSERT_TRUE(has_left);
  EXPECT_EQ(log().front().at("dropped").as_string(), "the client disconnected");
  TestClient stays = client();
  EXPECT_NE(stays.send(request).read_until("hello").find("200 OK"), std::string::npos);
  EXPECT_EQ(scripted_.engine().n_submitted(), 1);
}

TEST_F(HttpServerTest, client_that_half_closes_after_its_request_gets_the_response) {
  for (const bool stream : {false, true}) {
    TestClient one = client();
    one.send(chat("SAY[[hello]]", stream));
    one.socket().shutdown(tcp::socket::shutdown_send);
    EXPECT_NE(one.read_to_end().find(stream ? "[DONE]" : "hello"), std::string::npos) << stream;
  }
  const std::string request = post(  // long enough for the worker thread, which is held up
      "/v1/completions",
      {{"prompt", "SAY[[hello]]"}, {"max_tokens", 50}, {"user", std::string(2 * ServerLimits().worker_bytes, 'u')}});
  std::promise<void> release;
  server_->work([held = release.get_future().share()] { held.wait(); });
  TestClient late = client();
  late.send(request).socket().shutdown(tcp::socket::shutdown_send);
  const std::string probe = late.read_until("102 Processing\r\n\r\n");
  const std::string second_probe = late.read_until("102 Processing\r\n\r\n");
  release.set_value();
  const std::string got = late.read_to_end();
  EXPECT_TRUE(probe.starts_with("HTTP/1.1 102")) << probe;
  EXPECT_TRUE(second_probe.starts_with("HTTP/1.1 102")) << second_probe;
  EXPECT_NE(got.find("200 OK"), std::string::npos) << got;
  EXPECT_NE(got.find("hello"), std::string::npos) << got;
}

// Lines of JSON have no comment that could be sent to find out whether the client is still there.
TEST_F(HttpServerTest, half_close_during_a_stream_of_json_lines_cancels_it) {
  TestClient one = client();
  one.send(post("/api/chat", {{"model", "scripted"},
                              {"messages", json::array{json::object{{"role", "user"}, {"content", "WAIT[[w]]"}}}}}));
  ASSERT_TRUE(eventually([&] { return scripted_.engine().n_submitted() == 1; }));
  one.socket().shutdown(tcp::socket::shutdown_send);
  EXPECT_TRUE(eventually([&] { return scripted_.engine().n_cancelled() == 1; }));
  EXPECT_EQ(one.read_to_end().find("ping"), std::string::npos);
}

TEST_F(HttpServerTest, incomplete_request_followed_by_eof_ends_the_connection) {
  TestClient one = client();
  one.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\nGET /rea");
  one.socket().shutdown(tcp::socket::shutdown_send);
  const std::string got = one.read_to_end();
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK")) << got;
  EXPECT_EQ(got.find("HTTP/1.1", 1), std::string::npos) << got;
}

TEST_F(HttpServerTest, http_1_0_client_gets_a_stream_that_ends_with_the_connection) {
  TestClient one = client();
  const std::string body = R"({"messages":[{"role":"user","content":"SAY[[hello]]"}],"stream":true})";
  one.send(fmt::format("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
  const std::string got = one.read_to_end();
  EXPECT_EQ(got.find("Transfer-Encoding"), std::string::npos);
  EXPECT_TRUE(got.ends_with("data: [DONE]\n\n")) << got;
}

TEST_F(HttpServerTest, disconnect_by_fin_or_rst_cancels_the_generation) {
  for (const bool stream : {false, true}) {
    for (const bool with_reset : {false, true}) {
      const int n_before = scripted_.engine().n_submitted();
      TestClient one = client();
      one.send(chat("WAIT[[w]]", stream, 2));
      if (stream) one.read_until(kWord);
      ASSERT_TRUE(eventually([&] { return scripted_.engine().n_submitted() >= n_before + 2; }));
      if (with_reset) {
        one.reset();
      } else {
        one.close();
      }
      ASSERT_TRUE(eventually([&] { return scripted_.engine().n_cancelled() >= n_before + 2; }));
      EXPECT_TRUE(scripted_.engine().wait_until_idle());
    }
  }
}

TEST_F(HttpServerTest, request_for_an_unknown_route_is_rejected_before_its_body) {
  const std::string got =
      client().send("POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n").read_to_end();
  EXPECT_TRUE(got.starts_with("HTTP/1.1 404")) << got;
  EXPECT_NE(got.find("Connection: close"), std::string::npos);
}

TEST_F(HttpServerTest, oversized_input_is_rejected_with_a_reason) {
  ServerLimits limits;
  limits.http = {.header_bytes = 1000, .body_bytes = 1000};
  restart(limits);
  EXPECT_TRUE(
      client().send("GET / HTTP/1.1\r\nX: " + std::string(3000, 'a')).read_to_end().starts_with("HTTP/1.1 431"));
  EXPECT_TRUE(
      client()
          .send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n" + std::string(2000, 'a'))
          .read_to_end()
          .starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(client().send("\x16\x03\x01 nonsense\r\n\r\n").read_to_end().starts_with("HTTP/1.1 400"));
}

TEST_F(HttpServerTest, bodies_over_the_total_limit_are_rejected) {
  ServerLimits limits;
  limits.all_bodies_bytes = 150000;
  restart(limits);
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
  TestClient one = client();
  one.send(head + std::string(99000, ' '));
  TestClient asking = client();  // its round trips give the event loop time to read the first one's bytes
  for (int i = 0; i < 20; ++i) asking.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").read_until("}");
  EXPECT_TRUE(client().send(head + std::string(99000, ' ')).read_to_end().starts_with("HTTP/1.1 503"));
  TestClient small = client();  // a small request is not rejected because of large bodies of others
  EXPECT_NE(small.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").read_until("}").find("200 OK"),
            std::string::npos);
  one.send("{\"content\":\"a\"}" + std::string(985, ' '));  // the first one completes, and its bytes are released
  EXPECT_NE(one.read_until("}").find("200 OK"), std::string::npos);
  TestClient two = client();
  two.send(head + "{\"content\":\"a\"}" + std::string(99985, ' '));
  EXPECT_NE(two.read_until("}").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, large_bodies_of_one_client_do_not_use_up_the_total_limit) {
  ServerLimits limits;
  limits.all_bodies_bytes = 400000;
  restart(limits);
  const std::string head = "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
  const std::string rest = "{\"content\":\"a\"}" + std::string(985, ' ');
  std::deque<TestClient> open;
  for (int i = 0; i < 3; ++i) open.emplace_back(server_->port());
  for (TestClient& one : open) one.send(head + std::string(99000, ' '));
  TestClient asking = client();  // its round trips give the event loop time to read their bytes
  for (int i = 0; i < 40; ++i) asking.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").read_until("}");
  EXPECT_TRUE(client().send(head + std::string(99000, ' ')).read_to_end().starts_with("HTTP/1.1 503"));
  open.emplace_back(server_->port(), "127.0.0.2");
  open.back().send(head + std::string(99000, ' '));
  for (int i = 0; i < 40; ++i) asking.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").read_until("}");
  asking.send(post("/tokenize", {{"content", std::string(6000, 'a')}}));  // small bodies are always accepted
  EXPECT_NE(asking.read_until("}").find("200 OK"), std::string::npos);
  for (TestClient& one : open) EXPECT_NE(one.send(rest).read_until("}").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, connections_over_the_limit_get_503) {
  ServerLimits limits;
  limits.connections = 2;
  restart(limits);
  TestClient one = client(), two = client();
  one.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").read_until("}");
  two.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").read_until("}");
  EXPECT_TRUE(client().read_to_end().starts_with("HTTP/1.1 503"));
  one.close();
  EXPECT_TRUE(eventually([&] {  // its slot is freed once the server has noticed
    return client()
        .send("GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .read_to_end()
        .starts_with("HTTP/1.1 200");
  }));
}

TEST_F(HttpServerTest, continue_is_sent_if_the_client_expects_it) {
  TestClient one = client();
  one.send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 15\r\n\r\n");
  EXPECT_EQ(one.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_NE(one.send("{\"content\":\"a\"}").read_until("}").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, draining_finishes_responses_and_accepts_no_more) {
  TestClient idle = client(), busy = client();
  idle.send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").read_until("}");
  busy.send(chat("WAIT[[w]]", true)).read_until(kWord);
  server_->stop();
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_EQ(scripted_.engine().n_cancelled(), 0);
  busy.close();  // the last open connection
  thread_.join();
  EXPECT_TRUE(scripted_.engine().wait_until_idle());
}

// A load balancer needs some seconds until it sends no more requests; those of that time must not be lost.
TEST_F(HttpServerTest, during_the_drain_delay_requests_are_served_and_the_server_is_not_ready) {
  ServerLimits limits;
  limits.drain_delay = std::chrono::hours(1);
  restart(limits);
  std::promise<void> watched;
  server_->post([&] {
    server_->watch_signals();
    watched.set_value();
  });
  watched.get_future().wait();
  const auto ready = [&] { return client().send("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").read_until("}"); };
  EXPECT_TRUE(ready().starts_with("HTTP/1.1 200"));
  TestClient busy = client();
  busy.send(chat("WAIT[[w]]", true)).read_until(kWord);
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(eventually([&] { return ready().starts_with("HTTP/1.1 503"); }));
  const std::string got = client().send(chat("SAY[[late]]", false)).read_to_end();
  EXPECT_NE(got.find("late"), std::string::npos);
  EXPECT_NE(got.find("Connection: close"), std::string::npos) << "else the next request might come after the delay";
  EXPECT_EQ(scripted_.engine().n_cancelled(), 0);
  ::kill(::getpid(), SIGTERM);  // at once
  thread_.join();
}

TEST_F(HttpServerTest, after_the_drain_delay_the_server_ends) {
  ServerLimits limits;
  limits.drain_delay = std::chrono::seconds(1);
  restart(limits);
  const auto start = std::chrono::steady_clock::now();
  server_->post([&] {
    server_->watch_signals();
    ::kill(::getpid(), SIGTERM);
  });
  thread_.join();
  EXPECT_GE(std::chrono::steady_clock::now() - start, limits.drain_delay);
}

TEST_F(HttpServerTest, every_request_has_one_log_line) {
  client().send(chat("SAY[[x]]", false)).read_until("usage");
  client().send(chat("SAY[[x]]", true)).read_until("[DONE]");
  client().send("nonsense\r\n\r\n").read_to_end();
  TestClient gone = client();
  gone.send(chat("WAIT[[w]]", true)).read_until(kWord);
  gone.close();
  ASSERT_TRUE(eventually([&] { return log().size() >= 4; }));
  stop();
  const std::vector<json::object> lines = log();
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("status").get_int64(), 200);
  EXPECT_EQ(lines[0].at("finish").get_string(), "end_token");
  EXPECT_EQ(lines[1].at("stream").get_bool(), true);
  EXPECT_EQ(lines[2].at("status").get_int64(), 400);
  EXPECT_EQ(lines[3].at("dropped").get_string(), "the client disconnected");
  EXPECT_EQ(lines[3].at("finish").get_string(), "cancelled");
  EXPECT_GT(lines[3].at("completion_tokens").get_int64(), 0);
}

TEST_F(HttpServerTest, every_response_and_its_log_line_have_the_request_id) {
  const auto header_of = [](const std::string& got, const std::string& name) {
    const size_t at = got.find("\r\n" + name + ": ");
    return at == got.npos ? "" : got.substr(at + name.size() + 4, got.find("\r\n", at + 2) - at - name.size() - 4);
  };
  const std::string given =
      client().send(post("/tokenize", {{"content", "a"}}, "x-request-id: my-id_1\r\n")).read_until("}");
  EXPECT_EQ(header_of(given, "x-request-id"), "my-id_1");
  EXPECT_EQ(header_of(given, "request-id"), "my-id_1");
  const std::string made = client().send(chat("SAY[[x]]", true)).read_until("[DONE]");
  EXPECT_TRUE(header_of(made, "x-request-id").starts_with("req_")) << made;
  const std::string refused =
      client().send(post("/tokenize", {{"content", 1}}, "request-id: a\"b\r\n")).read_until("}");
  EXPECT_TRUE(header_of(refused, "x-request-id").starts_with("req_")) << "not an id to repeat: " << refused;
  const std::string malformed = client().send("nonsense\r\n\r\n").read_to_end();
  EXPECT_TRUE(header_of(malformed, "x-request-id").starts_with("req_")) << malformed;
  ASSERT_TRUE(eventually([&] { return log().size() >= 4; }));
  const std::vector<json::object> lines = log();
  EXPECT_EQ(lines[0].at("request_id").get_string(), "my-id_1");
  EXPECT_EQ(lines[1].at("request_id").get_string(), header_of(made, "x-request-id"));
  EXPECT_NE(made.find(text_of(lines[1].at("id").get_string())), std::string::npos) << "the id of the completion";
  EXPECT_EQ(lines[2].at("request_id").get_string(), header_of(refused, "x-request-id"));
}

TEST_F(HttpServerTest, log_line_has_the_reason_of_a_refused_request) {
  client().send(post("/v1/chat/completions", {{"messages", 1}})).read_until("}");
  client().send("GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n").read_until("}");
  client().send("nonsense\r\n\r\n").read_to_end();
  client().send(chat("FAIL[[x]]", true)).read_until("device");
  ASSERT_TRUE(eventually([&] { return log().size() >= 4; }));
  const std::vector<json::object> lines = log();
  const auto error_of = [&](size_t i) { return text_of(lines[i].at("error").get_string()); };
  EXPECT_NE(error_of(0).find("messages"), std::string::npos);
  EXPECT_NE(error_of(1).find("/nowhere"), std::string::npos);
  EXPECT_NE(error_of(2).find("malformed HTTP"), std::string::npos);
  EXPECT_NE(error_of(3).find("device is lost"), std::string::npos);
}

TEST(Listen, a_broken_pipe_on_standard_error_does_not_end_the_process) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto listen_then_write = [] {
    const auto server = HttpServer::listen({.host = "127.0.0.1", .port = 0}, {});
    int ends[2];
    if (::pipe(ends) != 0) ::_exit(2);
    ::close(ends[0]);
    ::_exit(server.ok() && ::write(ends[1], "x", 1) < 0 ? 0 : 1);
  };
  EXPECT_EXIT(listen_then_write(), testing::ExitedWithCode(0), "");
}

TEST(Listen, signal_after_draining_terminates_the_process) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto drain_then_wait = [] {
    const std::unique_ptr<HttpServer> server =
        std::move(HttpServer::listen({.host = "127.0.0.1", .port = 0}, {}).value());
    server->set_handlers([](const HttpRequest&, const std::shared_ptr<Reply>&) {}, Api::protocol_error,
                         [](const json::object&) {});
    server->watch_signals();
    ::raise(SIGTERM);
    server->run();
    ::raise(SIGTERM);  // for example while caches are saved, which may take long
    ::_exit(0);
  };
  EXPECT_EXIT(drain_then_wait(), testing::KilledBySignal(SIGTERM), "");
}

TEST(Listen, connections_are_refused_until_the_server_listens) {
  const auto server = std::move(HttpServer::bind({.host = "127.0.0.1", .port = 0}, {}).value());
  const auto connect = [&] {
    boost::asio::io_context loop;
    tcp::socket socket(loop);
    boost::system::error_code error;
    socket.connect({boost::asio::ip::address_v4::loopback(), server->port()}, error);
    return error;
  };
  EXPECT_EQ(connect(), boost::asio::error::connection_refused);
  ASSERT_TRUE(server->start_listening().ok());
  EXPECT_EQ(connect(), boost::system::error_code());
  EXPECT_EQ(HttpServer::bind({.host = "127.0.0.1", .port = server->port()}, {}).error().code, ErrorCode::unavailable);
}

TEST(Listen, loopback_addresses_are_recognized) {
  for (const char* host : {"127.0.0.1", "127.8.8.8", "::1", "localhost", "unix:/tmp/zinc.sock"})
    EXPECT_TRUE(is_local_address(host)) << host;
  for (const char* host : {"0.0.0.0", "::", "192.168.1.1", "example.com", "unix:", ""}) {
    EXPECT_FALSE(is_local_address(host)) << host;
  }
}

TEST(Listen, unix_socket_serves_requests_and_belongs_to_the_user) {
  const TestFolder folder;
  const std::string path = (folder / "s").string();
  const auto listen = [&] { return HttpServer::listen({.host = "unix:" + path}, {}); };
  {
    auto server = std::move(listen().value());
    EXPECT_EQ(server->port(), 0);
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
    EXPECT_NE(listen().error().message.find("another server"), std::string::npos);
    std::string client_name;
    server->set_handlers(
        [&](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
          client_name = request.client;
          reply->send({.body = "hello"});
        },
        Api::protocol_error, [](const json::object&) {});
    std::thread thread([&] { server->run(); });
    boost::asio::io_context loop;
    boost::asio::local::stream_protocol::socket socket(loop);
    socket.connect(boost::asio::local::stream_protocol::endpoint(path));
    boost::asio::write(socket,
                       boost::asio::buffer(std::string_view("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")));
    std::string got(1000, '\0');
    boost::system::error_code ended;
    got.resize(boost::asio::read(socket, boost::asio::buffer(got), ended));
    EXPECT_TRUE(got.ends_with("hello")) << got;
    server->stop();
    thread.join();
    EXPECT_EQ(client_name, "unix");
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  {  // as left by a killed server
    boost::asio::io_context loop;
    boost::asio::local::stream_protocol::acceptor stale(loop, boost::asio::local::stream_protocol::endpoint(path));
  }
  EXPECT_TRUE(listen().ok());
  put(path, "a file");
  EXPECT_NE(listen().error().message.find("not a socket"), std::string::npos);
  EXPECT_EQ(contents(path), "a file");
  EXPECT_FALSE(HttpServer::listen({.host = "unix:/" + std::string(200, 'x')}, {}).ok());
}

TEST(Listen, invalid_address_and_missing_certificate_are_errors) {
  EXPECT_FALSE(HttpServer::listen({.host = "no.such.host", .port = 0}, {}).ok());
  EXPECT_FALSE(
      HttpServer::listen({.host = "127.0.0.1", .port = 0, .tls_certificate = "/nowhere", .tls_key = "/nowhere"}, {})
          .ok());
}

}  // namespace
}  // namespace zinc
