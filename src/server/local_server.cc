#include "server/local_server.h"

namespace zinc {

Result<std::unique_ptr<LocalServer>> LocalServer::start(std::unique_ptr<Engine> engine, std::string name) {
  ApiOptions options;
  options.limits.drain_time = std::chrono::seconds(0);
  ZINC_TRY(listening, HttpServer::listen({.host = "127.0.0.1", .port = 0}, options.limits));
  std::unique_ptr<LocalServer> out(new LocalServer(std::move(listening)));
  HttpServer& server = *out->server_;
  out->api_ = std::make_unique<Api>(
      out->models_, options,
      EventLoopPort{.post = [&server](std::function<void()> task) { server.post(std::move(task)); },
                    .work = [&server](std::function<void()> task) { server.work(std::move(task)); },
                    .is_draining = [&server] { return server.is_draining(); },
                    .n_connections = [&server] { return server.n_connections(); }});
  out->engine_ = std::make_unique<EngineThread>(std::move(engine));
  ZINC_TRY(described, ServedModel::load(*out->engine_, std::move(name)));
  out->models_.add(std::move(described));
  server.set_handlers(
      [&api = *out->api_](HttpRequest request, std::shared_ptr<Reply> reply) {
        api.handle(std::move(request), std::move(reply));
      },
      Api::protocol_error, [](const json::object&) {},
      [&api = *out->api_](const HttpRequest& head) { return api.check_headers(head); });
  out->loop_thread_ = std::jthread([&server] { server.run(); });
  return out;
}

LocalServer::~LocalServer() { server_->stop(); }

std::string LocalServer::url() const { return fmt::format("http://127.0.0.1:{}", server_->port()); }

}  // namespace zinc
