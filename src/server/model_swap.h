// Requests that name a model which is not loaded wait here until it is: the server loads it at its start, or the
// library loads it for them. Requests for the same model wait together: each model is loaded at most once at a time.
// Event-loop thread only.
#pragma once

#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "server/model_library.h"
#include "server/served_model.h"

namespace zinc {

class ModelSwap {
 public:
  // The result holds the model from the moment it is loaded: loading another model cannot unload it before use.
  using Callback = std::function<void(const std::variant<ModelRef, ApiError>&)>;
  using Run = std::function<void(std::function<void()> task)>;

  // `post` runs a task on the event loop.
  ModelSwap(const ModelList& models, ModelLibrary* library, Run post)
      : models_(models), library_(library), post_(std::move(post)) {}

  // Calls `callback` once the model that is being loaded is loaded or cannot be. An empty name means any. False: no
  // such model is being loaded, and `callback` is not called.
  bool wait_for(const std::string& name, const Callback& callback);
  // As wait_for(), and has the library load the model if it is not being loaded.
  bool ensure_loaded(const std::string& name, const Callback& callback);

  // Around a load that somebody else does.
  void begin_load(std::vector<std::string> names);
  void finish_load(const std::string& name, const std::variant<ModelRef, ApiError>& result);
  bool is_loading() const { return !pending_loads_.empty(); }

 private:
  struct PendingLoad {
    std::vector<std::string> names;  // the model's, then its aliases
    std::vector<Callback> callbacks;
  };
  std::vector<PendingLoad>::iterator find_load(const std::string& name);

  const ModelList& models_;
  ModelLibrary* library_;
  Run post_;
  std::vector<PendingLoad> pending_loads_;  // in order of request
};

}  // namespace zinc
