// The real server with a scripted engine (tests/support/scripted_engine.h): a model that outputs what the prompt tells
// it to, for tests with real clients. Listens on a free port with the API key "test-key" and prints its address.
#include <fmt/core.h>

#include <cstdio>

#include "server/api.h"
#include "server/http_server.h"
#include "tests/support/scripted_engine.h"

int main() {
  using namespace zinc;
  ApiOptions options;
  options.access.keys = {"test-key"};
  const auto listening = HttpServer::listen({.host = "127.0.0.1", .port = 0}, options.limits);
  if (!listening.ok()) {
    fmt::print(stderr, "{}\n", listening.error().message);
    return 1;
  }
  HttpServer& server = *listening.value();
  std::unique_ptr<Api> api;                          // before the engine, whose thread notifies it until it has ended
  ScriptedModel scripted(ZINC_SOURCE_DIR, 1 << 17);  // coding agents have long prompts
  api = std::make_unique<Api>(
      scripted.models(), options,
      EventLoopPort{.post = [&](std::function<void()> task) { server.post(std::move(task)); },
                    .work = [&](std::function<void()> task) { server.work(std::move(task)); },
                    .is_draining = [&] { return server.is_draining(); },
                    .n_connections = [&] { return server.n_connections(); },
                    .run_after = [&](std::chrono::milliseconds delay,
                                     std::function<void()> task) { server.run_after(delay, std::move(task)); }});
  server.set_handlers(
      [&](HttpRequest request, std::shared_ptr<Reply> reply) { api->handle(std::move(request), std::move(reply)); },
      Api::protocol_error, [](const json::object&) {},
      [&](const HttpRequest& head) { return api->check_headers(head); });
  server.watch_signals();
  fmt::print("listening on http://127.0.0.1:{}\n", server.port());
  std::fflush(stdout);
  server.run();
}
