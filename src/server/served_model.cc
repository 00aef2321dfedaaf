#include "server/served_model.h"

#include <algorithm>

namespace zinc {

void ModelList::add(ServedModel model) {
  auto added = std::make_shared<const ServedModel>(std::move(model));
  ModelRef replaced;  // let go of after the lock
  const std::lock_guard lock(mutex_);
  for (ModelRef& other : models_) {
    if (other->name != added->name) continue;
    replaced = std::exchange(other, std::move(added));
    return;
  }
  models_.push_back(std::move(added));
}

ModelRef ModelList::remove(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(models_.begin(), models_.end(), [&](const ModelRef& model) { return model->name == name; });
  if (found == models_.end()) return nullptr;
  ModelRef removed = std::move(*found);
  models_.erase(found);
  return removed;
}

ModelRef ModelList::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  if (name.empty()) return models_.size() == 1 ? models_.front() : nullptr;
  for (const ModelRef& model : models_) {
    if (model->name == name) return model;
  }
  return nullptr;
}

std::vector<ModelRef> ModelList::all() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

std::string ModelList::names() const {
  std::string out;
  for (const ModelRef& model : all()) out += (out.empty() ? "" : ", ") + model->name;
  return out;
}

}  // namespace zinc
