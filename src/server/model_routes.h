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

// Memory, context and prefix cache of a loaded model, as they are now.
json::object model_figures(const ServedModel& model);

}  // namespace zinc
