#include "server/http_server.h"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <unordered_map>

#include "server/connection.h"
#include "server/transport.h"

namespace zinc {

namespace asio = boost::asio;
using asio::ip::tcp;
using StreamProtocol = asio::generic::stream_protocol;
using Acceptor = asio::basic_socket_acceptor<StreamProtocol>;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};  // after running out of file descriptors

Result<asio::ip::address> parse_address(const std::string& host) {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) {
    return fail(ErrorCode::invalid_input,
                "--host '{}' is not an IP address; expected for example 127.0.0.1, 0.0.0.0, ::1 or unix:PATH", host);
  }
  return address;
}

constexpr std::string_view kUnixPrefix = "unix:";

tcp::endpoint tcp_endpoint(const StreamProtocol::endpoint& endpoint) {
  tcp::endpoint out;
  if (endpoint.size() > out.capacity()) return out;
  std::memcpy(out.data(), endpoint.data(), endpoint.size());
  out.resize(endpoint.size());
  return out;
}

// The socket of a server that has ended is replaced; one that is in use, or a file, is an error.
Status remove_stale_socket(const std::string& path) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) return ok_status();
  if (!S_ISSOCK(status.st_mode))
    return fail(ErrorCode::invalid_input, "{}: exists and is not a socket; choose another path", path);
  asio::io_context loop;
  asio::local::stream_protocol::socket probe(loop);
  error_code refused;
  probe.connect(asio::local::stream_protocol::endpoint(path), refused);
  if (!refused) return fail(ErrorCode::io, "{}: another server listens on this socket", path);
  ::unlink(path.c_str());
  return ok_status();
}

Result<StreamProtocol::endpoint> endpoint_of(const ListenOptions& options) {
  const std::string path = unix_socket_path(options.host);
  if (path.empty()) {
    ZINC_TRY(address, parse_address(options.host));
    return StreamProtocol::endpoint(tcp::endpoint(address, options.port));
  }
  constexpr size_t kMaxPath = sizeof(sockaddr_un::sun_path) - 1;
  if (path.size() > kMaxPath) {
    return fail(ErrorCode::invalid_input, "the path of a Unix socket has at most {} bytes; '{}' has {}", kMaxPath, path,
                path.size());
  }
  ZINC_TRY(removed, remove_stale_socket(path));
  return StreamProtocol::endpoint(asio::local::stream_protocol::endpoint(path));
}

error_code bind_to(Acceptor& acceptor, const StreamProtocol::endpoint& endpoint) {
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  const mode_t before = ::umask(0177);  // a Unix socket is the user's own
  if (!error) acceptor.bind(endpoint, error);
  ::umask(before);
  return error;
}

Error listen_failure(const ListenOptions& options, const error_code& error) {
  const bool is_unix = !unix_socket_path(options.host).empty();
  if (error == asio::error::address_in_use && !is_unix) {
    return fail(ErrorCode::unavailable, "port {} of {} is already in use", options.port, options.host);
  }
  return fail(ErrorCode::io, "cannot listen on {}{}: {}", options.host,
              is_unix ? "" : fmt::format(" port {}", options.port), error.message());
}

// The reader of standard error may leave: a write to it then fails instead of ending the process.
void ignore_broken_pipes() { ::signal(SIGPIPE, SIG_IGN); }

// Each connection needs a file descriptor; the usual soft limit of 1,024 is too low for a server. Best effort.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

std::string unix_socket_path(const std::string& host) {
  return host.starts_with(kUnixPrefix) ? host.substr(kUnixPrefix.size()) : std::string();
}

Status check_listen_host(const std::string& host) {
  if (!unix_socket_path(host).empty()) return ok_status();
  const Result<asio::ip::address> address = parse_address(host);
  return address.ok() ? ok_status() : Status(address.error());
}

bool is_local_address(const std::string& host) {
  if (!unix_socket_path(host).empty()) return true;
  const Result<asio::ip::address> address = parse_address(host);
  return address.ok() && address.value().is_loopback();
}

struct HttpServer::State {
  State(ListenOptions options, const ServerLimits& server_limits)
      : listen_options(std::move(options)),
        limits(server_limits),
        acceptor(loop),
        signals(loop),
        hangups(loop),
        timer(loop),
        delay_timer(loop),
        worker(1),
        host{.limits = limits} {}

  void accept();
  void accepted(StreamSocket socket);
  void watch_signals(std::function<void(size_t n_answers)> on_drain);
  void watch_hangup(const std::function<void()>& callback);
  size_t n_answering() const;
  void drain_after_delay();
  void drain();
  void stop_if_drained();
  void stop_now();
  void drop_slow_readers();

  ListenOptions listen_options;
  ServerLimits limits;
  asio::io_context loop{1};
  Acceptor acceptor;
  std::string socket_path;  // of a Unix socket, which is removed at the end
  asio::signal_set signals, hangups;
  asio::steady_timer timer;        // pause between accepts; drain deadline
  asio::steady_timer delay_timer;  // limits.drain_delay
  asio::thread_pool worker;
  std::shared_ptr<asio::ssl::context> tls;
  ConnectionHost host;
  std::unordered_map<Connection*, std::weak_ptr<Connection>> connections;
};

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  state_->worker.join();
  state_->stop_now();
  if (!state_->socket_path.empty()) ::unlink(state_->socket_path.c_str());
}

Result<std::unique_ptr<HttpServer>> HttpServer::bind(const ListenOptions& options, const ServerLimits& limits) {
  ZINC_TRY(endpoint, endpoint_of(options));
  raise_descriptor_limit();
  ignore_broken_pipes();
  auto state = std::make_unique<State>(options, limits);
  if (!options.tls_certificate.empty()) {
    ZINC_TRY(tls, load_tls(options.tls_certificate, options.tls_key));
    state->tls = tls;
  }
  if (const error_code error = bind_to(state->acceptor, endpoint)) return listen_failure(options, error);
  state->socket_path = unix_socket_path(options.host);
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

Status HttpServer::start_listening() {
  error_code error;
  state_->acceptor.listen(asio::socket_base::max_listen_connections, error);
  return error ? Status(listen_failure(state_->listen_options, error)) : ok_status();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const ListenOptions& options, const ServerLimits& limits) {
  ZINC_TRY(server, bind(options, limits));
  ZINC_TRY(listening, server->start_listening());
  return std::move(server);
}

uint16_t HttpServer::port() const {
  error_code ignored;
  return state_->socket_path.empty() ? tcp_endpoint(state_->acceptor.local_endpoint(ignored)).port() : uint16_t{0};
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
    state->stop_if_drained();
  };
  state_->host.drop_slow_readers = [state = state_.get()] { state->drop_slow_readers(); };
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
void HttpServer::watch_hangup(std::function<void()> callback) { state_->watch_hangup(callback); }

void HttpServer::post(std::function<void()> task) { asio::post(state_->loop, std::move(task)); }
void HttpServer::run_after(std::chrono::milliseconds delay, std::function<void()> task) {
  const auto timer_of_task = std::make_shared<asio::steady_timer>(state_->loop, delay);
  timer_of_task->async_wait([timer_of_task, task = std::move(task)](error_code cancelled) {
    if (!cancelled) task();
  });
}
void HttpServer::work(std::function<void()> task) { asio::post(state_->worker, std::move(task)); }
void HttpServer::stop() {
  post([state = state_.get()] { state->drain(); });
}
void HttpServer::stop_within(std::chrono::milliseconds drain_time) {
  run_after(drain_time, [state = state_.get()] { state->stop_now(); });
  stop();
}
bool HttpServer::is_draining() const { return state_->host.draining; }
size_t HttpServer::n_connections() const { return state_->connections.size(); }

void HttpServer::State::accept() {
  acceptor.async_accept([this](error_code error, StreamSocket socket) {
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

void HttpServer::State::accepted(StreamSocket socket) {
  error_code error;
  const StreamProtocol::endpoint peer = socket.remote_endpoint(error);
  if (error) return;
  std::string client = socket_path.empty() ? tcp_endpoint(peer).address().to_string() : "unix";
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
  const auto connection = std::make_shared<Connection>(loop, std::move(transport), std::move(client), host);
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
    drain_after_delay();
    signals.async_wait([this](error_code second_error, int) {
      if (!second_error) stop_now();
    });
  });
}

void HttpServer::State::watch_hangup(const std::function<void()>& callback) {
  error_code ignored;
  hangups.add(SIGHUP, ignored);
  hangups.async_wait([this, callback](error_code error, int) {
    if (error) return;
    callback();
    watch_hangup(callback);
  });
}

void HttpServer::State::drain_after_delay() {
  if (limits.drain_delay.count() == 0) return drain();
  host.draining = true;
  delay_timer.expires_after(limits.drain_delay);
  delay_timer.async_wait([this](error_code cancelled) {
    if (!cancelled) drain();
  });
}

void HttpServer::State::drain() {
  if (!acceptor.is_open()) return;
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
  if (acceptor.is_open() || !connections.empty()) return;
  timer.cancel();
  signals.cancel();
  loop.stop();
}

// Those first whose clients have read nothing for the longest time. Short responses are left alone: they could not be
// enough.
void HttpServer::State::drop_slow_readers() {
  while (host.n_unread_bytes > limits.all_unread_bytes) {
    std::shared_ptr<Connection> slowest;
    for (const auto& [pointer, weak] : connections) {
      const std::shared_ptr<Connection> connection = weak.lock();
      if (!connection || connection->n_unread_bytes() <= limits.pending_bytes) continue;
      if (!slowest || connection->progress_time() < slowest->progress_time()) slowest = connection;
    }
    if (!slowest) return;
    slowest->abort_slow_reader();
  }
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
