#include "server/served_model.h"

#include <algorithm>
#include <filesystem>

#include "graph/sampling_fields.h"
#include "hub/recommended_sampling.h"

namespace zinc {

Result<ServedModel> ServedModel::load(EngineThread& engine, std::string name) {
  ZINC_TRY(chat, ChatModel::load(engine.engine(), std::move(name)));
  const ModelInstance& model = engine.model();
  const RecommendedSampling recommended = recommended_sampling(model.file());
  json::object sampling = sampling_json(sampling_params(recommended));
  sampling["origin"] = recommended.origin;
  return ServedModel{std::move(chat),
                     &engine,
                     {{"architecture", model.model().architecture->gguf_name},
                      {"backend", model.backend_name()},
                      {"kv_format", model.kv_format().name},
                      {"trained_context", model.model().config.max_context},
                      {"file", std::filesystem::path(model.file().name()).filename().string()},
                      {"recommended_sampling", std::move(sampling)}}};
}

void ModelList::add(ServedModel model) {
  model.default_dry_breakers = find_dry_breakers({.dry_multiplier = 1}, model.tokenizer);
  auto added = std::make_shared<const ServedModel>(std::move(model));
  ModelRef replaced;  // destroyed after the lock is released
  const std::lock_guard lock(mutex_);
  for (Named& other : models_) {
    if (other.name != added->name) continue;
    replaced = std::exchange(other.model, std::move(added));
    return;
  }
  models_.push_back({.name = added->name, .model = added});
}

ModelRef ModelList::remove(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(models_, name, &Named::name);
  if (found == models_.end()) return nullptr;
  ModelRef removed = std::move(found->model);
  models_.erase(found);
  return removed;
}

std::shared_ptr<const ModelList> ModelList::of(std::string name, ModelRef model) {
  const auto out = std::make_shared<ModelList>();
  out->models_.push_back({.name = std::move(name), .model = std::move(model)});
  return out;
}

ModelRef ModelList::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  if (name.empty()) return models_.size() == 1 ? models_.front().model : nullptr;
  const auto found = std::ranges::find_if(
      models_, [&](const Named& entry) { return entry.name == name || entry.model->has_name(name); });
  return found == models_.end() ? nullptr : found->model;
}

std::vector<ModelRef> ModelList::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<ModelRef> out;
  for (const Named& entry : models_) out.push_back(entry.model);
  return out;
}

std::string ModelList::names() const {
  std::string out;
  for (const ModelRef& model : all()) {
    out += (out.empty() ? "" : ", ") + model->name;
    for (const std::string& alias : model->aliases) out += ", " + alias;
  }
  return out;
}

}  // namespace zinc
