#include "server/model_swap.h"

#include <algorithm>

namespace zinc {
namespace {

std::variant<ModelRef, ApiError> model_of(const ModelList& models,
                                          const std::variant<LibraryResponse, ApiError>& response) {
  if (const ApiError* error = std::get_if<ApiError>(&response)) return *error;
  const json::string& name = std::get<LibraryResponse>(response).body.at("id").as_string();
  ModelRef model = models.find(name);
  if (!model) return http_error(503, "the model was unloaded again before the request could use it; retry");
  return model;
}

}  // namespace

bool ModelSwap::ensure_loaded(const std::string& name, Callback callback) {
  const auto pending =
      name.empty() ? pending_loads_.begin() : std::ranges::find(pending_loads_, name, &PendingLoad::name);
  if (pending != pending_loads_.end()) {
    pending->callbacks.push_back(std::move(callback));
    return true;
  }
  if (name.empty()) return false;
  pending_loads_.push_back({.name = name, .callbacks = {}});
  pending_loads_.back().callbacks.push_back(std::move(callback));
  library_->ensure_loaded(name, [this, name](const std::variant<LibraryResponse, ApiError>& response) {
    post_([this, name, result = model_of(models_, response)] { finish_load(name, result); });
  });
  return true;
}

void ModelSwap::finish_load(const std::string& name, const std::variant<ModelRef, ApiError>& result) {
  const auto pending = std::ranges::find(pending_loads_, name, &PendingLoad::name);
  const std::vector<Callback> callbacks = std::move(pending->callbacks);
  pending_loads_.erase(pending);
  for (const Callback& callback : callbacks) callback(result);
}

}  // namespace zinc
