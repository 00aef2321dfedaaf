// The port: accepts connections on one event loop, counts them, drains on request. What is answered is the handler's
// business. listen() and run() on one thread; post() and stop() from any.
#pragma once

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
  std::string host = "127.0.0.1";                            // an address
  uint16_t port = 8080;                                      // 0: any free one
  std::filesystem::path tls_certificate = {}, tls_key = {};  // both or neither
};

bool is_loopback_address(const std::string& host);

class HttpServer {
 public:
  using Handler = std::function<void(HttpRequest, std::shared_ptr<Reply>)>;
  using Refusal = std::function<HttpResponse(int status, std::string_view message)>;
  // Looks at a request before its body has come, and may refuse it.
  using HeadCheck = std::function<std::optional<HttpResponse>(const HttpRequest& head)>;

  static Result<std::unique_ptr<HttpServer>> listen(const ListenOptions& options, const ServerLimits& limits);
  ~HttpServer();

  uint16_t port() const;
  void set_handlers(Handler handle, Refusal refuse, std::function<void(json::object)> write_log,
                    HeadCheck refuse_head = {});
  void watch_signals();  // until run() returns SIGTERM and SIGINT drain; a second one ends it at once
  void run();            // until stopped and drained; no task of work() runs any more when it returns

  void post(std::function<void()> task);  // runs on the event loop
  void work(std::function<void()> task);  // runs on the text worker, one after the other
  void stop();                            // accept no more, finish what is under way, end run()

  bool is_draining() const;      // event-loop thread
  size_t n_connections() const;  // event-loop thread

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace zinc
