// Routes for model management (server/model_library.h), and the list of loaded models with their statistics.
#pragma once

#include <memory>
#include <span>

#include "server/fields.h"
#include "server/http_message.h"
#include "server/model_library.h"
#include "server/reply.h"
#include "server/served_model.h"

namespace zinc {

enum class ModelAction : uint8_t { list, pull, cancel_pull, activate, unload, remove };

extern const std::span<const FieldDoc> kModelActionFields;

// Responds through the reply, on the event loop behind `post`. `library` nullptr: model management is off.
void manage_models(ModelLibrary* library, ModelAction action, const HttpRequest& request, std::shared_ptr<Reply> reply,
                   std::function<void(std::function<void()>)> post);

json::object pull_json(const PullStatus& pull);
json::object listing_json(const ModelListing& listing);  // the body of GET /models

// The body of GET /v1/models, readable by OpenAI's and Anthropic's packages: the loaded models with their current
// memory, context and cache statistics.
json::object loaded_models(const ModelList& models, int64_t created_s);
// Adds the library's metadata to the loaded models, and optionally the installed models that are not loaded.
enum class UnloadedModels : uint8_t { omit, include };
void merge_library(json::object& body, const json::object& library, UnloadedModels others);

}  // namespace zinc
