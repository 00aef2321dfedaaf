#include "server/model_routes.h"

#include "server/prepare.h"

namespace zinc {
namespace {

constexpr FieldDoc kFields[] = {
    {"model", "string", "Which model: an id that the list has, or a source such as hf:ORG/REPO:FILE to pull."},
    {"force", "boolean", "remove: a loaded model is unloaded first. Default false."},
    {"beside", "boolean", "activate: models that are loaded stay loaded. Default false: they make room."},
};

struct Asked {
  std::string model;
  bool force = false, beside = false;
};

OrApiError<Asked> read_asked(std::string_view body) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  RequestErrors errors;
  const FieldReader fields(std::get<json::object>(parsed), "", errors);
  fields.refuse_unknown({kFields});
  Asked out{.model = fields.required_text("model"),
            .force = fields.boolean("force").value_or(false),
            .beside = fields.boolean("beside").value_or(false)};
  if (errors.any()) return *errors.first();
  return out;
}

void start_action(ModelLibrary& library, ModelAction action, Asked asked, ModelLibrary::Done done) {
  switch (action) {
    case ModelAction::list:
      return library.list(std::move(done));
    case ModelAction::pull:
      return library.pull(std::move(asked.model), std::move(done));
    case ModelAction::cancel_pull:
      return library.cancel_pull(std::move(asked.model), std::move(done));
    case ModelAction::activate:
      return library.activate(std::move(asked.model), asked.beside, std::move(done));
    case ModelAction::remove:
      return library.remove(std::move(asked.model), asked.force, std::move(done));
  }
}

}  // namespace

const std::span<const FieldDoc> kModelActionFields = kFields;

void manage_models(ModelLibrary* library, ModelAction action, const HttpRequest& request, std::shared_ptr<Reply> reply,
                   std::function<void(std::function<void()>)> post) {
  const auto refuse = [&](const ApiError& error) { reply->send(error_response(error, ErrorForm::openai)); };
  if (!library) return refuse(http_error(501, "this server manages no models"));
  Asked asked;
  if (action != ModelAction::list) {
    OrApiError<Asked> read = read_asked(request.body);
    if (const ApiError* error = std::get_if<ApiError>(&read)) return refuse(*error);
    asked = std::move(std::get<Asked>(read));
  }
  start_action(*library, action, std::move(asked), [reply, post](std::variant<LibraryAnswer, ApiError> answer) {
    post([reply, answer = std::move(answer)] {
      if (const ApiError* error = std::get_if<ApiError>(&answer)) {
        return reply->send(error_response(*error, ErrorForm::openai));
      }
      const LibraryAnswer& good = std::get<LibraryAnswer>(answer);
      reply->send({.status = good.status, .body = to_json(good.body)});
    });
  });
}

json::object model_figures(const ServedModel& model) {
  const EngineStats stats = model.engine->stats();
  int n_total = 0, n_in_use = 0, n_cached = 0;
  for (const PageUse& use : stats.pages) {
    n_total += use.n_total;
    n_in_use += use.n_in_use;
    n_cached += use.n_cached;
  }
  const auto share = [&](int n) {
    return n_total > 0 ? model.limits.cache_bytes / static_cast<size_t>(n_total) * static_cast<size_t>(n) : 0;
  };
  return {{"weight_bytes", model.limits.weight_bytes},
          {"cache_bytes", model.limits.cache_bytes},
          {"cache_active_bytes", share(n_in_use)},
          {"cache_kept_bytes", share(n_cached)},
          {"context_tokens", model.limits.context},
          {"active_requests", stats.n_prefilling + stats.n_decoding},
          {"queued_requests", stats.n_waiting},
          {"prompt_tokens", stats.n_prompt_tokens},
          {"prompt_tokens_cached", stats.n_cached_tokens},
          {"generated_tokens", stats.n_generated_tokens}};
}

}  // namespace zinc
