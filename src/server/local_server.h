// A server for one model on a free port of this machine, with threads of its own; for whoever wants to be its client in
// the same process.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "server/api.h"
#include "server/engine_thread.h"
#include "server/http_server.h"

namespace zinc {

class LocalServer {
 public:
  static Result<std::unique_ptr<LocalServer>> start(std::unique_ptr<Engine> engine, std::string name);
  ~LocalServer();  // answers under way are cut off

  std::string url() const;

 private:
  explicit LocalServer(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}

  // The order matters at the end: the loop's thread goes first, then the engine, which tells what is left through the
  // API to the loop.
  std::unique_ptr<HttpServer> server_;
  ModelList models_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<EngineThread> engine_;
  std::jthread loop_thread_;
};

}  // namespace zinc
