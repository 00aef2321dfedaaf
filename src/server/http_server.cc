#include "server/http_server.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include <sys/resource.h>

#include <unordered_map>

#include "server/connection.h"
#include "server/transport.h"

namespace zinc {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};  // after running out of file descriptors

Result<asio::ip::address> parse_address(const std::string& host) {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) {
    return fail(ErrorCode::invalid_input,
                "--host '{}' is not an IP address; expected for example 127.0.0.1, 0.0.0.0 or ::1", host);
  }
  return address;
}

// Each connection needs a file descriptor; the usual soft limit of 1,024 is too low for a server. Best effort.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

Status check_listen_host(const std::string& host) {
  const Result<asio::ip::address> address = parse_address(host);
  return address.ok() ? ok_status() : Status(address.error());
}

bool is_loopback_address(const std::string& host) {
  const Result<asio::ip::address> address = parse_address(host);
  return address.ok() && address.value().is_loopback();
}

struct HttpServer::State {
  explicit State(const ServerLimits& server_limits)
      : limits(server_limits), acceptor(loop), signals(loop), timer(loop), worker(1), host{.limits = limits} {}

  void accept();
  void accepted(tcp::socket socket);
  void watch_signals(std::function<void(size_t n_answers)> on_drain);
  size_t n_answering() const;
  void drain();
  void stop_if_drained();
  void stop_now();

  ServerLimits limits;
  asio::io_context loop{1};
  tcp::acceptor acceptor;
  asio::signal_set signals;
  asio::steady_timer timer;  // pause between accepts; drain deadline
  asio::thread_pool worker;
  std::shared_ptr<asio::ssl::context> tls;
  ConnectionHost host;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;
};

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  state_->worker.join();
  state_->stop_now();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const ListenOptions& options, const ServerLimits& limits) {
  ZINC_TRY(address, parse_address(options.host));
  raise_descriptor_limit();
  auto state = std::make_unique<State>(limits);
  if (!options.tls_certificate.empty()) {
    ZINC_TRY(tls, load_tls(options.tls_certificate, options.tls_key));
    state->tls = tls;
  }
  error_code error;
  const tcp::endpoint endpoint(address, options.port);
  tcp::acceptor& acceptor = state->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error == asio::error::address_in_use) {
    return fail(ErrorCode::unavailable, "port {} of {} is already in use", options.port, options.host);
  }
  if (error) {
    return fail(ErrorCode::io, "cannot listen on {} port {}: {}", options.host, options.port, error.message());
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

uint16_t HttpServer::port() const {
  error_code ignored;
  return state_->acceptor.local_endpoint(ignored).port();
}

void HttpServer::set_handlers(Handler handle, ProtocolError protocol_error, std::function<void(json::object)> write_log,
                              HeaderCheck check_headers) {
  state_->host.handle = std::move(handle);
  state_->host.protocol_error = std::move(protocol_error);
  state_->host.check_headers = [check = std::move(check_headers)](const HttpRequest& head) {
    return check ? check(head) : std::nullopt;
  };
  state_->host.write_log = std::move(write_log);
  state_->host.closed = [state = state_.get()](Connection* connection) {
    state->connections.erase(connection);
    if (state->host.draining) state->stop_if_drained();
  };
}

void HttpServer::run() {
  state_->accept();
  state_->loop.run();
  error_code ignored;
  state_->signals.clear(ignored);  // the next signal terminates the process immediately
  state_->worker.stop();           // before the objects its tasks use are destroyed
  state_->worker.join();
}

void HttpServer::watch_signals(std::function<void(size_t n_answers)> on_drain) {
  state_->watch_signals(std::move(on_drain));
}

void HttpServer::post(std::function<void()> task) { asio::post(state_->loop, std::move(task)); }
void HttpServer::work(std::function<void()> task) { asio::post(state_->worker, std::move(task)); }
void HttpServer::stop() {
  post([state = state_.get()] { state->drain(); });
}
bool HttpServer::is_draining() const { return state_->host.draining; }
size_t HttpServer::n_connections() const { return state_->connections.size(); }

void HttpServer::State::accept() {
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    if (!error) {
      accepted(std::move(socket));
      return accept();
    }
    timer.expires_after(kAcceptPause);
    timer.async_wait([this](error_code cancelled) {
      if (!cancelled && acceptor.is_open()) accept();
    });
  });
}

void HttpServer::State::accepted(tcp::socket socket) {
  error_code error;
  const tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return;
  socket.set_option(tcp::no_delay(true), error);
  if (connections.size() >= limits.connections) {  // send the reason to the client, best effort, without blocking
    const HttpResponse full = host.protocol_error(503, "too many connections; retry later");
    const std::string bytes =
        response_head(full, static_cast<long long>(full.body.size()), /*keeps_alive=*/false) + full.body;
    socket.non_blocking(true, error);
    if (!tls) socket.write_some(asio::buffer(bytes), error);
    return;
  }
  auto transport = tls ? tls_transport(std::move(socket), *tls) : plain_transport(std::move(socket));
  const auto connection = std::make_shared<Connection>(loop, std::move(transport), peer.address().to_string(), host);
  connections.emplace(connection.get(), connection);
  connection->start();
}

size_t HttpServer::State::n_answering() const {
  size_t n = 0;
  for (const auto& [pointer, weak] : connections) {
    const std::shared_ptr<Connection> connection = weak.lock();
    n += connection && connection->is_answering();
  }
  return n;
}

void HttpServer::State::watch_signals(std::function<void(size_t n_answers)> on_drain) {
  signals.add(SIGTERM);
  signals.add(SIGINT);
  signals.async_wait([this, on_drain = std::move(on_drain)](error_code error, int) {
    if (error) return;
    if (on_drain) on_drain(n_answering());
    drain();
    signals.async_wait([this](error_code second_error, int) {
      if (!second_error) stop_now();
    });
  });
}

void HttpServer::State::drain() {
  if (host.draining) return;
  host.draining = true;
  error_code ignored;
  acceptor.close(ignored);
  std::vector<std::shared_ptr<Connection>> open;
  for (const auto& [pointer, connection] : connections) open.push_back(connection.lock());
  for (const auto& connection : open) {
    if (connection) connection->close_if_idle();
  }
  timer.expires_after(limits.drain_time);
  timer.async_wait([this](error_code cancelled) {
    if (!cancelled) stop_now();
  });
  stop_if_drained();
}

void HttpServer::State::stop_if_drained() {
  if (!connections.empty()) return;
  timer.cancel();
  signals.cancel();
  loop.stop();
}

void HttpServer::State::stop_now() {
  std::vector<std::shared_ptr<Connection>> open;
  for (const auto& [pointer, connection] : connections) open.push_back(connection.lock());
  for (const auto& connection : open) {
    if (connection) connection->abort();
  }
  loop.stop();
}

}  // namespace zinc
