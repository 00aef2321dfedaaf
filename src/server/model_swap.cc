#include "server/model_swap.h"

#include <algorithm>

namespace zinc {
namespace {

OrApiError<ModelRef> model_of(const ModelList& models, const OrApiError<std::string>& loaded) {
  if (const ApiError* error = std::get_if<ApiError>(&loaded)) return *error;
  ModelRef model = models.find(std::get<std::string>(loaded));
  if (!model) return http_error(503, "the model was unloaded again before the request could use it; retry");
  return model;
}

}  // namespace

std::vector<ModelSwap::PendingLoad>::iterator ModelSwap::find_load(const std::string& name) {
  return std::ranges::find_if(
      pending_loads_, [&](const PendingLoad& load) { return std::ranges::find(load.names, name) != load.names.end(); });
}

bool ModelSwap::wait_for(const std::string& name, const Callback& callback) {
  const auto pending = name.empty() ? pending_loads_.begin() : find_load(name);
  if (pending == pending_loads_.end()) return false;
  pending->callbacks.push_back(callback);
  return true;
}

bool ModelSwap::ensure_loaded(const std::string& name, const Callback& callback) {
  if (wait_for(name, callback)) return true;
  if (name.empty()) return false;
  begin_load({name});
  pending_loads_.back().callbacks.push_back(callback);
  library_->ensure_loaded(name, [this, name](const OrApiError<std::string>& loaded) {
    post_([this, name, result = model_of(models_, loaded)] { finish_load(name, result); });
  });
  return true;
}

void ModelSwap::begin_load(std::vector<std::string> names) {
  pending_loads_.push_back({.names = std::move(names), .callbacks = {}});
}

void ModelSwap::finish_load(const std::string& name, const std::variant<ModelRef, ApiError>& result) {
  const auto pending = find_load(name);
  const std::vector<Callback> callbacks = std::move(pending->callbacks);
  pending_loads_.erase(pending);
  for (const Callback& callback : callbacks) callback(result);
}

}  // namespace zinc
