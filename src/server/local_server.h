// A server for one model on a free port of this machine, with its own threads; for clients in the same process.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "engine/engine_thread.h"
#include "server/api.h"
#include "server/http_server.h"

namespace zinc {

class LocalServer {
 public:
  static Result<std::unique_ptr<LocalServer>> start(std::unique_ptr<Engine> engine, std::string name);
  ~LocalServer();  // responses in progress are aborted

  std::string url() const;

 private:
  explicit LocalServer(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}

  // Destruction order matters: first the event loop's thread, then the engine, which still notifies the API and the
  // loop.
  std::unique_ptr<HttpServer> server_;
  ModelList models_;
  std::unique_ptr<Api> api_;
  std::unique_ptr<EngineThread> engine_;
  std::jthread loop_thread_;
};

}  // namespace zinc
