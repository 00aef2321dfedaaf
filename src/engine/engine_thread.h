// An Engine together with the thread that runs it. stop() and the EnginePort functions are called on one thread, the
// caller's own: the event loop's in a server.
#pragma once

#include <memory>
#include <thread>

#include "engine/engine.h"

namespace zinc {

// The engine functions that callers use; the contract is in engine/engine.h.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  virtual Result<RequestId> submit(Request request) = 0;
  virtual void cancel(RequestId id) = 0;
  virtual EngineStats stats() const = 0;
};

class EngineThread final : public EnginePort {
 public:
  explicit EngineThread(std::unique_ptr<Engine> engine);
  void stop();  // ends the thread and the engine; pending requests end as cancelled, later ones fail
  // Ends the thread and saves the prefix cache, then stops. REQUIRES: the engine has a cache file.
  Status stop_and_save();
  ~EngineThread() override;  // stops

  Result<RequestId> submit(Request request) override;
  void cancel(RequestId id) override;
  EngineStats stats() const override;

  const Engine& engine() const { return *engine_; }  // REQUIRES: not stopped
  const ModelInstance& model() const { return engine_->model(); }

 private:
  std::unique_ptr<Engine> engine_;
  std::jthread thread_;
};

}  // namespace zinc
