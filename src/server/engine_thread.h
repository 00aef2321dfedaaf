// An Engine with the thread that runs it, as the server wants it, and what the server knows of its model.
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
  // Ends the thread and saves the prefix tree. REQUIRES: the engine has a cache file; nobody submits any more.
  Status stop_and_save();
  ~EngineThread() override;  // requests that are left end as cancelled

  Result<RequestId> submit(Request request) override { return engine_->submit(std::move(request)); }
  void cancel(RequestId id) override { engine_->cancel(id); }
  EngineStats stats() const override { return engine_->stats(); }

  // The model under this name. The thread must outlive it.
  Result<ServedModel> describe(std::string name);

 private:
  std::unique_ptr<Engine> engine_;
  std::jthread thread_;
};

}  // namespace zinc
