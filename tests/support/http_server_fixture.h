// The server over real sockets with a scripted engine, and a client whose every byte the test decides.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <poll.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/api.h"
#include "server/http_server.h"
#include "tests/support/scripted_engine.h"

namespace zinc {

inline constexpr std::chrono::seconds kDeadline(60);  // for every wait: a test that hangs fails instead

template <typename Condition>
bool eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

inline constexpr size_t kLongBytes = 12 << 20;  // of the response to /long: more than the socket buffers hold
inline constexpr std::string_view kWord = R"("content":"w")";  // in a stream, of WAIT[[w]]

class TestClient {
 public:
  using tcp = boost::asio::ip::tcp;

  static constexpr int kSmallBuffer = 4096;

  // `receive_bytes`: the size of the socket's receive buffer; 0: the system's.
  explicit TestClient(uint16_t port, const char* own_address = "127.0.0.1", int receive_bytes = 0)
      : socket_(loop_, tcp::v4()) {
    if (receive_bytes > 0) socket_.set_option(boost::asio::socket_base::receive_buffer_size(receive_bytes));
    socket_.bind(tcp::endpoint(boost::asio::ip::make_address(own_address), 0));
    socket_.connect(tcp::endpoint(boost::asio::ip::make_address("127.0.0.1"), port));
  }
  TestClient& send(std::string_view bytes) {
    boost::system::error_code ignored;  // the server may have closed the connection; the test checks its response
    boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
    return *this;
  }
  // Reads until `text` arrives or the connection ends; returns everything read.
  std::string read_until(std::string_view text) {
    while (text.empty() || got_.find(text) == std::string::npos) {
      pollfd readable{.fd = socket_.native_handle(), .events = POLLIN, .revents = 0};
      if (::poll(&readable, 1, static_cast<int>(std::chrono::milliseconds(kDeadline).count())) != 1) {
        ADD_FAILURE() << "no byte from the server within the deadline";
        break;
      }
      char block[4096];
      boost::system::error_code error;
      const size_t n = socket_.read_some(boost::asio::buffer(block), error);
      if (error) break;
      got_.append(block, n);
    }
    return std::exchange(got_, {});
  }
  std::string read_to_end() { return read_until({}); }
  // Reads what has arrived, without waiting; the next read_until() returns it.
  void read_available() {
    pollfd readable{.fd = socket_.native_handle(), .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 0) != 1) return;
    char block[64 << 10];
    boost::system::error_code error;
    got_.append(block, socket_.read_some(boost::asio::buffer(block), error));
  }
  void reset() {  // RST instead of FIN
    socket_.set_option(boost::asio::socket_base::linger(true, 0));
    socket_.close();
  }
  void close() { socket_.close(); }
  tcp::socket& socket() { return socket_; }

 private:
  boost::asio::io_context loop_;
  tcp::socket socket_;
  std::string got_;
};

inline std::string post(std::string_view path, const json::value& body, std::string_view headers = "") {
  const std::string text = to_json(body);
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", path, headers,
                     text.size(), text);
}

inline std::string chat(std::string_view text, bool stream, int n = 1) {
  return post(
      "/v1/chat/completions",
      {{"messages", json::array{json::object{{"role", "user"}, {"content", text}}}}, {"stream", stream}, {"n", n}});
}

inline size_t n_ok(std::string_view got) {  // responses with status 200
  size_t n = 0;
  for (size_t at = got.find("200 OK"); at != got.npos; at = got.find("200 OK", at + 1)) ++n;
  return n;
}

// The whole server; GET /long is answered with kLongBytes.
class HttpServerTest : public testing::Test {
 protected:
  void start(ServerLimits limits) {
    server_ = std::move(HttpServer::listen({.host = "127.0.0.1", .port = 0}, limits).value());
    api_ = std::make_unique<Api>(
        scripted_.models(), ApiOptions{.limits = limits},
        EventLoopPort{.post = [this](std::function<void()> task) { server_->post(std::move(task)); },
                      .work = [this](std::function<void()> task) { server_->work(std::move(task)); },
                      .is_draining = [this] { return server_->is_draining(); },
                      .n_connections = [this] { return server_->n_connections(); }});
    server_->set_handlers(
        [this](HttpRequest request, std::shared_ptr<Reply> reply) {
          if (request.path == "/long") return reply->send({.body = std::string(kLongBytes, 'x')});
          api_->handle(std::move(request), std::move(reply));
        },
        Api::protocol_error,
        [this](json::object line) {
          const std::lock_guard lock(mutex_);
          log_.push_back(std::move(line));
        },
        [this](const HttpRequest& head) { return api_->check_headers(head); });
    thread_ = std::thread([this] { server_->run(); });
  }
  void SetUp() override { start({}); }
  void stop() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
  }
  void restart(ServerLimits limits) {
    stop();
    start(limits);
  }
  void TearDown() override { stop(); }

  std::vector<json::object> log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  TestClient client() { return TestClient(server_->port()); }
  TestClient slow_client() { return TestClient(server_->port(), "127.0.0.1", TestClient::kSmallBuffer); }

  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<Api> api_;
  ScriptedModel scripted_{ZINC_SOURCE_DIR};  // last: its thread notifies the API until it has ended
  std::thread thread_;
  std::mutex mutex_;
  std::vector<json::object> log_;
};

}  // namespace zinc
