// Requests that name a model which is not loaded wait here until the library has loaded it. Requests for the same model
// wait together: each model is loaded at most once at a time. Event-loop thread only.
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

  // Calls `callback` once the model is loaded or cannot be. An empty name means the model that is being loaded; false:
  // none is, and `callback` is not called.
  bool ensure_loaded(const std::string& name, Callback callback);

 private:
  struct PendingLoad {
    std::string name;
    std::vector<Callback> callbacks;
  };
  void finish_load(const std::string& name, const std::variant<ModelRef, ApiError>& result);

  const ModelList& models_;
  ModelLibrary* library_;
  Run post_;
  std::vector<PendingLoad> pending_loads_;  // in order of request
};

}  // namespace zinc
