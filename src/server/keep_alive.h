// Unloads models that have been idle for the time that a request asked for (keep_alive of Ollama's API). Models without
// such a time stay loaded. Event-loop thread only.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/chat_request.h"
#include "server/model_library.h"
#include "server/served_model.h"

namespace zinc {

class KeepAlive {
 public:
  using Clock = std::chrono::system_clock;  // shown to clients
  // Runs a task on the event loop after a delay.
  using RunAfter = std::function<void(std::chrono::milliseconds, std::function<void()>)>;

  // `library` nullptr: models are never unloaded.
  KeepAlive(const ModelList& models, ModelLibrary* library, RunAfter run_after)
      : models_(models), library_(library), run_after_(std::move(run_after)) {}

  // Starts the idle time of the model anew, with this length.
  void set(const std::string& model, const KeepAliveTime& time);
  // When it will be unloaded if it stays idle; nullopt: never.
  std::optional<Clock::time_point> expires_at(const std::string& model) const;

 private:
  struct Entry {
    std::string model;
    std::chrono::milliseconds idle;
    Clock::time_point idle_since;
    uint64_t n_submitted;  // requests of its engine at the last check
  };
  void schedule();
  void check();

  const ModelList& models_;
  ModelLibrary* library_;
  RunAfter run_after_;
  std::vector<Entry> entries_;
  bool is_scheduled_ = false;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // for tasks that outlive this object
};

}  // namespace zinc
