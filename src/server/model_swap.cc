#include "server/model_swap.h"

#include <algorithm>

namespace zinc {
namespace {

std::variant<ModelRef, ApiError> model_of(const ModelList& models,
                                          const std::variant<LibraryAnswer, ApiError>& answer) {
  if (const ApiError* error = std::get_if<ApiError>(&answer)) return *error;
  const json::string& name = std::get<LibraryAnswer>(answer).body.at("id").as_string();
  ModelRef model = models.find(name);
  if (!model) return http_error(503, "the model was unloaded again; try once more");
  return model;
}

}  // namespace

bool ModelSwap::bring(const std::string& name, Then then) {
  const auto known = name.empty() ? wanted_.begin() : std::ranges::find(wanted_, name, &Wanted::name);
  if (known != wanted_.end()) {
    known->waiting.push_back(std::move(then));
    return true;
  }
  if (name.empty()) return false;
  wanted_.push_back({.name = name, .waiting = {}});
  wanted_.back().waiting.push_back(std::move(then));
  library_->bring(name, [this, name](const std::variant<LibraryAnswer, ApiError>& answer) {
    post_([this, name, brought = model_of(models_, answer)] { settle(name, brought); });
  });
  return true;
}

void ModelSwap::settle(const std::string& name, const std::variant<ModelRef, ApiError>& brought) {
  const auto known = std::ranges::find(wanted_, name, &Wanted::name);
  const std::vector<Then> waiting = std::move(known->waiting);
  wanted_.erase(known);
  for (const Then& then : waiting) then(brought);
}

}  // namespace zinc
