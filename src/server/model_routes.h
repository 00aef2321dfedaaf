// The routes that manage models (server/model_library.h), and the figures of those that are loaded.
#pragma once

#include <memory>
#include <span>

#include "server/fields.h"
#include "server/http_message.h"
#include "server/model_library.h"
#include "server/reply.h"
#include "server/served_model.h"

namespace zinc {

enum class ModelAction : uint8_t { list, pull, cancel_pull, activate, remove };

extern const std::span<const FieldDoc> kModelActionFields;

// Answers through the reply, on the loop that `post` leads to. `library` may be nullptr: there is nothing to manage.
void manage_models(ModelLibrary* library, ModelAction action, const HttpRequest& request, std::shared_ptr<Reply> reply,
                   std::function<void(std::function<void()>)> post);

// The body of GET /v1/models, which both OpenAI's and Anthropic's packages read: the models that are loaded, with
// memory, context and prefix cache as they are now.
json::object loaded_models(const ModelList& models, int64_t created_s);
// Adds what a list of the library knows of them, and of this machine's others.
enum class OtherModels : uint8_t { left_out, listed };
void add_known(json::object& body, const json::object& library, OtherModels others);

}  // namespace zinc
