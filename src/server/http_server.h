// The HTTP server: accepts connections on one event loop, limits their number, drains on request. Requests are passed
// to the handler. bind(), listen() and run() on one thread; post() and stop() from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/limits.h"
#include "server/reply.h"

namespace zinc {

struct ListenOptions {
  std::string host = "127.0.0.1";                            // an IP address, or unix:PATH for a Unix socket
  uint16_t port = 8080;                                      // 0: any free port; not for a Unix socket
  std::filesystem::path tls_certificate = {}, tls_key = {};  // both or neither
};

// The path of "unix:PATH"; empty: `host` is an IP address.
std::string unix_socket_path(const std::string& host);
Status check_listen_host(const std::string& host);  // an error unless it is an IP address, localhost or unix:PATH
// Whether only this machine can reach the address. A Unix socket is accessible to the user only (mode 0600).
bool is_local_address(const std::string& host);

class HttpServer {
 public:
  using Handler = std::function<void(HttpRequest, std::shared_ptr<Reply>)>;
  using ProtocolError = std::function<HttpResponse(int status, std::string_view message)>;
  // Checks the headers before the body arrives; a response rejects the request.
  using HeaderCheck = std::function<std::optional<HttpResponse>(const HttpRequest& head)>;

  // Takes the address. Connections are refused until start_listening().
  static Result<std::unique_ptr<HttpServer>> bind(const ListenOptions& options, const ServerLimits& limits);
  Status start_listening();
  // Both of them.
  static Result<std::unique_ptr<HttpServer>> listen(const ListenOptions& options, const ServerLimits& limits);
  ~HttpServer();

  uint16_t port() const;  // 0: a Unix socket
  void set_handlers(Handler handle, ProtocolError protocol_error, std::function<void(json::object)> write_log,
                    HeaderCheck check_headers = {});
  // Until run() returns, SIGTERM and SIGINT drain after limits.drain_delay, in which is_draining() is true and requests
  // are still accepted, so that load balancers go elsewhere first; a second signal stops at once. `on_drain` is called
  // at the first one, with the number of responses in progress.
  void watch_signals(std::function<void(size_t n_answers)> on_drain = {});
  void watch_hangup(std::function<void()> callback);  // called on the event loop at each SIGHUP
  void run();  // until stopped and drained; when it returns, no task of work() is running

  void post(std::function<void()> task);                                        // runs on the event loop
  void run_after(std::chrono::milliseconds delay, std::function<void()> task);  // runs on the event loop
  void work(std::function<void()> task);  // runs on the worker thread, one task at a time
  void stop();                            // stops accepting, finishes responses in progress, ends run()
  void stop_within(std::chrono::milliseconds drain_time);  // the same, with this limit instead of limits.drain_time

  bool is_draining() const;      // event-loop thread
  size_t n_connections() const;  // event-loop thread

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace zinc
