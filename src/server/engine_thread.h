// An Engine together with the thread that runs it. stop() and the EnginePort functions are called on one thread, the
// event loop's.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "server/served_model.h"

namespace zinc {

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

  // The model served under this name. This object must outlive it.
  Result<ServedModel> describe(std::string name);
  const ModelInstance& model() const { return engine_->model(); }

 private:
  std::unique_ptr<Engine> engine_;
  std::jthread thread_;
};

}  // namespace zinc
