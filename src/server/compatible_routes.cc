// Routes of other servers: Ollama's API, llama.cpp's routes without /v1, vLLM's small ones. Clients written for those
// servers work unchanged.
#include "base/version.h"
#include "server/api_route.h"
#include "server/generation.h"
#include "server/llama_routes.h"
#include "server/ollama_fields.h"
#include "server/text_routes.h"

namespace zinc {
namespace {

void send_object(const json::object& body, Reply& reply) { reply.send({.body = to_json(body)}); }

void refuse_management(Reply& reply) {
  reply.send(error_response(http_error(501, "this server does not manage models"), ErrorFormat::ollama));
}

// Why a route is not supported.
constexpr char kNoCopies[] =
    "models cannot be copied; start the server with NAME=MODEL to serve a model under another name";
constexpr char kNoModelfiles[] =
    "models cannot be created from a Modelfile; send the system message and the options with each request";
constexpr char kNoUploads[] = "models cannot be uploaded from this server";
constexpr char kNoNewSettings[] =
    "settings cannot be changed while the server runs; send them with each request, or restart the server with other "
    "options";
constexpr char kNoRerankers[] =
    "reranking needs a reranker model, and no supported architecture is one; /v1/embeddings gives vectors to compare";

const json::object* find_entry(const json::object& models, std::string_view name) {
  for (const json::value& entry : models.at("data").get_array()) {
    if (entry.at("id").get_string() == name) return &entry.get_object();
  }
  return nullptr;
}

ApiError ollama_not_found(std::string_view name) {
  return model_not_found(
      fmt::format("model '{}' not found; GET /api/tags lists the available models", name.substr(0, 100)));
}

}  // namespace

const Api::Route Api::kCompatibleRoutes[] = {
    {"POST", "/api/chat", "Chat (Ollama)", false, Route::generate_or_load<ollama_chat_dialect>, ollama_chat_dialect},
    {"POST", "/api/generate", "Answer to a prompt (Ollama)", false, Route::generate_or_load<ollama_generate_dialect>,
     ollama_generate_dialect},
    {"GET", "/api/tags", "The models a request may name (Ollama)", false, Route::show<&Api::show_ollama_tags>},
    {"GET", "/api/ps", "The loaded models (Ollama)", false, Route::show<&Api::show_ollama_ps>},
    {"POST", "/api/show", "Facts about a model (Ollama)", false, Route::call<&Api::show_ollama_model>, nullptr,
     &kOllamaModelFields},
    {"POST", "/api/embed", "Embeddings of texts (Ollama)", false, Route::embed<kOllamaEmbed>, nullptr,
     &kOllamaEmbedFields},
    {"POST", "/api/embeddings", "Embedding of one text (Ollama, older)", false, Route::embed<kOllamaEmbeddings>,
     nullptr, &kOllamaEmbeddingsFields},
    {"POST", "/api/pull", "Downloads a model and reports the progress (Ollama)", false,
     Route::call<&Api::pull_for_ollama>, nullptr, &kOllamaPullFields},
    {"DELETE", "/api/delete", "Removes a downloaded model (Ollama)", false, Route::call<&Api::delete_for_ollama>,
     nullptr, &kOllamaModelFields},
    {"GET", "/api/version", "The version of Ollama's API that is implemented", true,
     Route::show<&Api::show_ollama_version>},
    {"POST", "/api/copy", "Not supported (Ollama)", false, Route::refuse<ErrorFormat::ollama, kNoCopies>},
    {"POST", "/api/create", "Not supported (Ollama)", false, Route::refuse<ErrorFormat::ollama, kNoModelfiles>},
    {"POST", "/api/push", "Not supported (Ollama)", false, Route::refuse<ErrorFormat::ollama, kNoUploads>},
    {"POST", "/completion", "Completion of a raw prompt (llama.cpp)", false, Route::generate<llama_completion_dialect>,
     llama_completion_dialect},
    {"POST", "/completions", "Same as /completion (llama.cpp)", false, Route::generate<llama_completion_dialect>,
     llama_completion_dialect},
    {"POST", "/infill", "Fill-in-the-middle, for models with tokens for it (llama.cpp)", false,
     Route::generate<llama_infill_dialect>, llama_infill_dialect},
    {"POST", "/chat/completions", "Same as /v1/chat/completions (llama.cpp)", false, Route::generate<chat_dialect>,
     chat_dialect},
    {"POST", "/responses", "Same as /v1/responses (llama.cpp)", false, Route::call<&Api::generate_response>,
     responses_dialect},
    {"POST", "/embedding", "Embeddings of texts (llama.cpp)", false, Route::embed<kLlamaEmbedding>, nullptr,
     &kLlamaEmbeddingFields},
    {"POST", "/embeddings", "Same as /embedding (llama.cpp)", false, Route::embed<kLlamaEmbedding>, nullptr,
     &kLlamaEmbeddingFields},
    {"GET", "/v1/health", "Same as /health (llama.cpp)", true, Route::show<&Api::show_health>},
    {"GET", "/slots", "The requests each model can run at once (llama.cpp)", false, Route::show<&Api::show_slots>},
    {"POST", "/props", "Not supported (llama.cpp)", false, Route::refuse<ErrorFormat::openai, kNoNewSettings>},
    {"POST", "/models/load", "Loads an installed model (llama.cpp)", false, Route::manage<ModelAction::activate>,
     nullptr, &kModelActionFields},
    {"POST", "/models/unload", "Unloads a model (llama.cpp)", false, Route::manage<ModelAction::unload>, nullptr,
     &kModelActionFields},
    {"GET", "/lora-adapters", "An empty list: adapters are not supported (llama.cpp)", false,
     Route::show<&Api::show_no_adapters>},
    {"POST", "/rerank", "Not supported: no supported architecture is a reranker (llama.cpp, vLLM)", false,
     Route::refuse<ErrorFormat::openai, kNoRerankers>},
    {"POST", "/reranking", "Same as /rerank (llama.cpp)", false, Route::refuse<ErrorFormat::openai, kNoRerankers>},
    {"POST", "/v1/rerank", "Same as /rerank (llama.cpp, vLLM)", false,
     Route::refuse<ErrorFormat::openai, kNoRerankers>},
    {"POST", "/v1/reranking", "Same as /rerank (llama.cpp)", false, Route::refuse<ErrorFormat::openai, kNoRerankers>},
    {"POST", "/v2/rerank", "Same as /rerank (vLLM)", false, Route::refuse<ErrorFormat::openai, kNoRerankers>},
    {"GET", "/version", "The version of the server (vLLM)", true, Route::show<&Api::show_version>},
    {"GET", "/ping", "200 while the server runs (vLLM)", true, Route::show<&Api::show_nothing>},
    {"POST", "/ping", "Same as GET (vLLM)", true, Route::show<&Api::show_nothing>},
    {"GET", "/load", "The number of requests in progress (vLLM)", true, Route::show<&Api::show_load>},
};

std::span<const Api::Route> Api::compatible_routes() { return kCompatibleRoutes; }

void Api::generate_or_load(const ApiDialect& dialect, HttpRequest request, std::shared_ptr<Reply> reply) {
  if (const std::optional<OllamaLoadRequest> load = read_ollama_load(dialect, limits_, request.body))
    return load_model(*load, dialect, std::move(request), std::move(reply));
  generate(dialect, std::move(request), std::move(reply));
}

void Api::load_model(const OllamaLoadRequest& load, const ApiDialect& dialect, HttpRequest request,
                     std::shared_ptr<Reply> reply) {
  const auto respond = [&dialect](const std::string& name, std::string_view reason, Reply& to) {
    json::object body{{"model", name}, {"created_at", ollama_time(std::chrono::system_clock::now())}};
    if (&dialect == &ollama_chat_dialect()) {
      body["message"] = {{"role", "assistant"}, {"content", ""}};
    } else {
      body["response"] = "";
    }
    body["done"] = true;
    body["done_reason"] = reason;
    send_object(body, to);
  };
  report_ignored_fields(load.ignored_fields, *reply);
  if (load.unloads() && swaps_models_) {
    const OrApiError<ModelRef> loaded = find_model(models_, load.model);  // a request may leave the name out
    const ModelRef* model = std::get_if<ModelRef>(&loaded);
    const std::string name = model ? (*model)->name : load.model;
    library_->unload(name, [this, respond, name, reply](const OrApiError<std::string>& response) {
      const ApiError* error = std::get_if<ApiError>(&response);
      loop_.post([respond, name, reply, is_unknown = error && error->code == kModelNotFound] {
        if (is_unknown) return reply->send(error_response(ollama_not_found(name), ErrorFormat::ollama));
        respond(name, "unload", *reply);  // also if it was not loaded
      });
    });
    return;
  }
  with_model(load.model, std::move(request), std::move(reply), ErrorFormat::ollama,
             [this, respond, keep_alive = load.keep_alive](const ModelRef& model, Reply& to) {
               if (keep_alive) keep_alive_.set(model->name, *keep_alive);
               respond(model->name, "load", to);
             });
}

void Api::show_ollama_tags(std::shared_ptr<Reply> reply) const {
  list_available_models(
      [reply = std::move(reply)](const json::object& models) { send_object(ollama_tags(models), *reply); });
}

void Api::show_ollama_ps(std::shared_ptr<Reply> reply) const {
  list_available_models([this, reply = std::move(reply)](const json::object& models) {
    send_object(ollama_ps(models_, models, keep_alive_), *reply);
  });
}

std::optional<OllamaModelRequest> Api::read_model_request(std::span<const FieldDoc> known, const HttpRequest& request,
                                                          Reply& reply) const {
  OrApiError<OllamaModelRequest> read = read_ollama_model_request(known, limits_, request.body);
  if (const ApiError* error = std::get_if<ApiError>(&read)) {
    reply.send(error_response(*error, ErrorFormat::ollama));
    return {};
  }
  report_ignored_fields(std::get<OllamaModelRequest>(read).ignored_fields, reply);
  return std::get<OllamaModelRequest>(std::move(read));
}

void Api::show_ollama_model(HttpRequest request, std::shared_ptr<Reply> reply) {
  std::optional<OllamaModelRequest> read = read_model_request(kOllamaModelFields, request, *reply);
  if (!read) return;
  list_available_models([this, name = read->model, reply = std::move(reply)](const json::object& models) {
    const json::object* entry = find_entry(models, name);
    if (!entry) return reply->send(error_response(ollama_not_found(name), ErrorFormat::ollama));
    send_object(ollama_show(*entry, models_.find(name).get()), *reply);
  });
}

void Api::pull_for_ollama(HttpRequest request, std::shared_ptr<Reply> reply) {
  std::optional<OllamaModelRequest> read = read_model_request(kOllamaPullFields, request, *reply);
  if (!read) return;
  if (!library_ || !loop_.run_after) return refuse_management(*reply);
  std::make_shared<OllamaPull>(*library_, std::move(*read), std::move(reply),
                               OllamaPull::Loop{.post = loop_.post, .run_after = loop_.run_after})
      ->start();
}

void Api::delete_for_ollama(HttpRequest request, std::shared_ptr<Reply> reply) {
  std::optional<OllamaModelRequest> read = read_model_request(kOllamaModelFields, request, *reply);
  if (!read) return;
  if (!library_) return refuse_management(*reply);
  library_->remove(read->model, /*force=*/true, [this, reply](const OrApiError<RemovedModel>& response) {
    loop_.post([reply, response] {
      const ApiError* error = std::get_if<ApiError>(&response);
      if (error) return reply->send(error_response(*error, ErrorFormat::ollama));
      reply->send({.body = "{}"});
    });
  });
}

void Api::show_ollama_version(std::shared_ptr<Reply> reply) const {
  send_object({{"version", kOllamaVersion}, {"zinc", version_text()}}, *reply);
}

void Api::show_version(std::shared_ptr<Reply> reply) const { send_object({{"version", version_text()}}, *reply); }
void Api::show_nothing(std::shared_ptr<Reply> reply) const { reply->send({.body = {}, .content_type = ""}); }
void Api::show_no_adapters(std::shared_ptr<Reply> reply) const { reply->send({.body = "[]"}); }
void Api::show_slots(std::shared_ptr<Reply> reply) const { reply->send({.body = to_json(llama_slots(models_))}); }

void Api::show_load(std::shared_ptr<Reply> reply) const {
  int n_requests = 0;
  for (const ModelRef& model : models_.all()) {
    const EngineStats stats = model->engine->stats();
    n_requests += stats.n_prefilling + stats.n_decoding + stats.n_waiting;
  }
  send_object({{"server_load", n_requests}}, *reply);
}

}  // namespace zinc
