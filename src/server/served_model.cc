#include "server/served_model.h"

namespace zinc {

const ServedModel* ModelList::find(std::string_view name) const {
  if (name.empty()) return models_.size() == 1 ? models_.front().get() : nullptr;
  for (const auto& model : models_) {
    if (model->name == name) return model.get();
  }
  return nullptr;
}

std::string ModelList::names() const {
  std::string out;
  for (const auto& model : models_) out += (out.empty() ? "" : ", ") + model->name;
  return out;
}

}  // namespace zinc
