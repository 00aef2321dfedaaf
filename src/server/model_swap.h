// Requests that name a model which is not loaded wait here until the library has brought it. Those that name the same
// model wait together, so that at most one loading of each is asked for. Event-loop thread only.
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
  // The model is held from the moment it is loaded: one that is brought for others cannot push it out before.
  using Then = std::function<void(const std::variant<ModelRef, ApiError>&)>;
  using Run = std::function<void(std::function<void()> task)>;

  // `post` runs a task on the loop.
  ModelSwap(const ModelList& models, ModelLibrary* library, Run post)
      : models_(models), library_(library), post_(std::move(post)) {}

  // Calls `then` once the model is there or cannot be. An empty name means the one that is on its way; false: none is,
  // and `then` is not called.
  bool bring(const std::string& name, Then then);

 private:
  struct Wanted {
    std::string name;
    std::vector<Then> waiting;
  };
  void settle(const std::string& name, const std::variant<ModelRef, ApiError>& brought);

  const ModelList& models_;
  ModelLibrary* library_;
  Run post_;
  std::vector<Wanted> wanted_;  // the first that was asked for first
};

}  // namespace zinc
