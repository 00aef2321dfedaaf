#include "server/api.h"

#include "base/nearest_name.h"
#include "graph/sampling_fields.h"
#include "server/api_route.h"
#include "server/embeddings.h"
#include "server/generation.h"
#include "server/llama_routes.h"
#include "server/metrics.h"
#include "server/model_routes.h"
#include "server/page.h"
#include "server/response_routes.h"
#include "server/text_routes.h"

namespace zinc {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";
constexpr std::string_view kUtf8Bom = "\xef\xbb\xbf";  // some editors write it at the start of a file

// Schemas and grammars take time to compile, however short they are; those of tools count if a call is forced or
// strict. Kept responses are longer than the request that names them. An escape (\u) may spell any of these names.
bool may_take_long(std::string_view body) {
  constexpr std::string_view kNames[] = {"\"response_format\"",
                                         "\"json_schema\"",
                                         "\"grammar\"",
                                         "\"structured_outputs\"",
                                         "\"guided_",
                                         "\"format\"",
                                         "\"strict\"",
                                         "\"tool_choice\"",
                                         "\"previous_response_id\"",
                                         "\"item_reference\"",
                                         "\\u"};
  return std::ranges::any_of(kNames, [&](std::string_view name) { return body.find(name) != body.npos; });
}

bool names_model(const HttpRequest& request) {
  return (request.method == "GET" || request.method == "HEAD") && request.path.starts_with(kModelPrefix);
}

std::string percent_decoded(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    const int lower = c | 0x20;
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 && digit(text[i + 2]) >= 0) {
      out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

ErrorFormat error_format_of(std::string_view path) {
  if (path.starts_with("/api/")) return ErrorFormat::ollama;
  return path.starts_with("/v1/messages") ? ErrorFormat::anthropic : ErrorFormat::openai;
}

json::object limits_json(const ServerLimits& limits) {
  return {{"body_bytes", limits.http.body_bytes},
          {"header_bytes", limits.http.header_bytes},
          {"all_bodies_bytes", limits.all_bodies_bytes},
          {"small_body_bytes", limits.small_body_bytes},
          {"template_kwargs_bytes", limits.template_kwargs_bytes},
          {"connections", limits.connections},
          {"pending_bytes", limits.pending_bytes},
          {"all_unread_bytes", limits.all_unread_bytes},
          {"header_seconds", limits.header_time.count()},
          {"body_seconds", limits.body_time.count()},
          {"idle_seconds", limits.idle_time.count()},
          {"write_seconds", limits.write_time.count()},
          {"ping_seconds", limits.ping_time.count()},
          {"drain_seconds", limits.drain_time.count()},
          {"drain_delay_seconds", limits.drain_delay.count()},
          {"n", limits.n},
          {"choices", limits.choices},
          {"stop_strings", limits.stop_strings},
          {"stop_string_bytes", limits.stop_string_bytes},
          {"top_logprobs", limits.top_logprobs},
          {"embedding_inputs", limits.embedding_inputs}};
}

json::object sampling_props(const SamplingParams& p) {
  json::array breakers;
  for (const std::string& breaker : p.dry_breakers) breakers.emplace_back(breaker);
  json::object out;
  for (const SamplingField& field : sampling_fields()) {
    std::visit([&](auto member) { out[field.name] = p.*member; }, field.member);
  }
  out["dry_sequence_breakers"] = std::move(breakers);
  return out;
}

json::object model_props(const ServedModel& model) {
  const ChatTemplate& chat = model.prompt.chat_template();
  json::object out{{"name", model.name},
                   {"context", model.limits.context},
                   {"parallel", model.limits.max_sequences},
                   {"queue", model.limits.queue_limit},
                   {"vocabulary", model.limits.n_vocab},
                   {"weight_bytes", model.limits.weight_bytes},
                   {"cache_bytes", model.limits.cache_bytes},
                   {"tool_format", model.tool_format->name},
                   {"supports_tools", chat.supports_tools()},
                   {"supports_thinking_toggle", chat.supports_thinking_toggle()},
                   {"thinking", thinking_json(model.thinking)},
                   {"supports_system", chat.supports_system()},
                   {"chat_template", chat.source()}};
  out["default_sampling"] = sampling_props(model.sampling_defaults.unset);
  for (const auto& member : model.facts) out[member.key()] = member.value();
  return out;
}

// Whether a path is a route's; "{id}" stands for one segment.
bool matches_path(std::string_view pattern, std::string_view path) {
  const size_t begin = pattern.find('{');
  if (begin == pattern.npos) return pattern == path;
  const std::string_view head = pattern.substr(0, begin), tail = pattern.substr(pattern.find('}') + 1);
  if (!path.starts_with(head) || !path.ends_with(tail) || path.size() <= head.size() + tail.size()) return false;
  return path.substr(head.size(), path.size() - head.size() - tail.size()).find('/') == path.npos;
}

void send_json(const json::object& body, Reply& reply) { reply.send({.body = to_json(body)}); }

double elapsed_s(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

// Public routes need no key, for orchestrators. They reveal the server's load, never prompts or outputs.
const Api::Route Api::kRoutes[] = {
    {"GET", "/health", "Liveness and load of the server", true, Route::show<&Api::show_health>},
    {"GET", "/ready", "200 while requests are accepted, 503 while the server loads its first model or drains", true,
     Route::show<&Api::show_ready>},
    {"POST", "/v1/chat/completions", "Chat completion (OpenAI)", false, Route::generate<chat_dialect>, chat_dialect},
    {"POST", "/v1/completions", "Completion of a raw prompt (OpenAI)", false, Route::generate<completions_dialect>,
     completions_dialect},
    {"POST", "/v1/responses", "Response to a conversation (OpenAI Responses)", false,
     Route::call<&Api::generate_response>, responses_dialect},
    {"POST", "/v1/responses/input_tokens", "Token count of a conversation (OpenAI Responses)", false,
     Route::call<&Api::count_response_input>, responses_dialect},
    {"GET", "/v1/responses/{id}", "A kept response", false, Route::kept_response<show_response>},
    {"DELETE", "/v1/responses/{id}", "Deletes a kept response", false, Route::kept_response<delete_response>},
    {"GET", "/v1/responses/{id}/input_items", "The input of a kept response, newest item first", false,
     Route::kept_response<list_input_items>},
    {"POST", "/v1/messages", "Response to a conversation (Anthropic Messages)", false,
     Route::generate<messages_dialect>, messages_dialect},
    {"POST", "/v1/messages/count_tokens", "Token count of a conversation", false,
     Route::from_body<count_tokens, ErrorFormat::anthropic>, messages_dialect},
    {"POST", "/v1/embeddings", "Embeddings of texts", false, Route::embed<kOpenAiEmbeddings>, nullptr,
     &kEmbeddingFields},
    {"GET", "/v1/models", "The models a request may name", false, Route::show<&Api::list_models>},
    {"GET", "/models", "The installed models and those in the catalog", false, Route::manage<ModelAction::list>},
    {"POST", "/v1/models/pull", "Starts to download a model", false, Route::manage<ModelAction::pull>, nullptr,
     &kModelActionFields},
    {"POST", "/v1/models/cancel", "Cancels a download; the partial file is kept for the next attempt", false,
     Route::manage<ModelAction::cancel_pull>, nullptr, &kModelActionFields},
    {"POST", "/v1/models/activate", "Loads an installed model", false, Route::manage<ModelAction::activate>, nullptr,
     &kModelActionFields},
    {"POST", "/v1/models/unload", "Unloads a model and frees its memory; its file stays", false,
     Route::manage<ModelAction::unload>, nullptr, &kModelActionFields},
    {"POST", "/v1/models/remove", "Removes a downloaded model", false, Route::manage<ModelAction::remove>, nullptr,
     &kModelActionFields},
    {"POST", "/tokenize", "Tokenizes a text", false, Route::from_body<tokenize>, nullptr, &kTokenizeFields},
    {"POST", "/detokenize", "Detokenizes token ids", false, Route::from_body<detokenize>, nullptr, &kDetokenizeFields},
    {"POST", "/apply-template", "Renders a chat request with the model's chat template", false,
     Route::from_body<apply_template>, chat_dialect},
    {"GET", "/props", "Settings of the server and its models", false, Route::show<&Api::show_props>},
    {"GET", "/tokenizer_info", "Special tokens and chat template of the loaded model (as in vLLM)", false,
     Route::show<&Api::show_tokenizer_info>},
    {"GET", "/metrics", "Metrics in Prometheus format", false, Route::show<&Api::show_metrics>},
    {"GET", "/openapi.json", "This OpenAPI document", false, Route::show<&Api::show_openapi>},
};

Api::Api(const ModelList& models, const ApiOptions& options, EventLoopPort loop)
    : models_(models),
      limits_(options.limits),
      build_(options.build),
      library_(options.library),
      swaps_models_(options.library && options.swaps_models),
      replica_(options.replica),
      responses_(options.kept_responses),
      access_(options.access),
      loop_(std::move(loop)),
      notifier_(loop_.post),
      worker_queue_(loop_.work, loop_.post),
      swap_(models_, library_, loop_.post),
      keep_alive_(models_, swaps_models_ ? library_ : nullptr, loop_.run_after),
      started_at_s_(
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
              .count()) {}

HttpResponse Api::protocol_error(int status, std::string_view message) {
  return error_response(http_error(status, message), ErrorFormat::openai);
}

const std::vector<Api::Route>& Api::routes() {
  static const std::vector<Route> all = [] {
    std::vector<Route> out(std::begin(kRoutes), std::end(kRoutes));
    for (const Route& route : compatible_routes()) out.push_back(route);
    return out;
  }();
  return all;
}

const Api::Route* Api::find_route(const HttpRequest& request, bool& is_other_method) const {
  const std::string_view method = request.method == "HEAD" ? std::string_view("GET") : request.method;
  for (const Route& route : routes()) {
    if (!matches_path(route.path, request.path)) continue;
    if (route.method == method) return &route;
    is_other_method = true;
  }
  return nullptr;
}

// Clients are configured with or without /v1, and some append a slash; others misspell a path.
std::string Api::suggest_path(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  constexpr size_t kMaxEdits = 3, kMinLength = 6;  // shorter paths are near too many others
  size_t best_edits = path.size() < kMinLength ? 0 : kMaxEdits + 1;
  std::string best;
  for (const Route& route : routes()) {
    const bool is_similar =
        route.path == path || route.path == fmt::format("/v1{}", path) || fmt::format("/v1{}", route.path) == path;
    if (is_similar) return std::string(route.path);
    const size_t n_edits = edit_distance(path, route.path);
    if (n_edits < best_edits) best_edits = n_edits, best = route.path;
  }
  return best;
}

std::string Api::methods_of(std::string_view path) {
  std::string out = "OPTIONS";
  for (const Route& route : routes()) {
    if (matches_path(route.path, path))
      out += fmt::format(", {}{}", route.method, route.method == "GET" ? ", HEAD" : "");
  }
  return out;
}

std::optional<ApiError> Api::check_request(const HttpRequest& head) const {
  if (const auto error = access_.check_origin(head)) return error;
  if (head.method == "OPTIONS" || is_page_request(head)) return {};
  bool is_other_method = false;
  const Route* route = find_route(head, is_other_method);
  if (!route || !route->is_public) {  // also before revealing which routes exist
    if (const auto error = access_.check_key(head)) return error;
  }
  if (route || names_model(head)) return {};
  if (is_other_method) return http_error(405, fmt::format("{} does not support {}", head.path, head.method));
  const std::string suggestion = suggest_path(head.path);
  return http_error(404,
                    fmt::format("no such route '{}'; {}GET /openapi.json lists all routes", head.path.substr(0, 100),
                                suggestion.empty() ? "" : fmt::format("did you mean {}? ", suggestion)));
}

std::optional<HttpResponse> Api::check_headers(const HttpRequest& head) const {
  const std::optional<ApiError> error = check_request(head);
  if (!error) return {};
  HttpResponse response = error_response(*error, error_format_of(head.path));
  if (error->status == 405) response.headers.emplace_back("Allow", methods_of(head.path));
  for (HttpHeader& header : access_.cors_headers(head)) response.headers.push_back(std::move(header));
  return response;
}

void Api::handle(HttpRequest request, std::shared_ptr<Reply> reply) {
  ++n_requests_;
  if (auto error = check_headers(request)) return reply->send(std::move(*error));
  for (HttpHeader& header : access_.cors_headers(request)) reply->headers.push_back(std::move(header));
  if (request.method == "OPTIONS") return reply->send({.status = 204, .body = {}, .content_type = ""});
  if (auto page = page_response(request)) return reply->send(std::move(*page));
  bool is_other_method = false;
  if (const auto error = admit(request, *reply)) {
    return reply->send(error_response(*error, error_format_of(request.path)));
  }
  if (request.body.starts_with(kUtf8Bom)) request.body.erase(0, kUtf8Bom.size());
  if (const Route* route = find_route(request, is_other_method)) {
    return route->handle(*this, std::move(request), std::move(reply));
  }
  show_model(percent_decoded(request.path.substr(kModelPrefix.size())), std::move(reply));
}

void Api::report_ignored_fields(const std::vector<std::string>& names, Reply& reply) {
  if (names.empty()) return;
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  reply.headers.emplace_back("x-zinc-ignored-fields", all);
  reply.log["ignored_fields"] = all;
}

std::optional<ApiError> Api::admit(const HttpRequest& request, Reply& reply) const {
  const Client client = access_.client_of(request);
  if (!client.key) return {};
  reply.log["key"] = client.key->options().name;
  if (request.method != "POST") return {};
  auto admitted = client.key->admit(ApiKey::Clock::now());
  if (ApiError* error = std::get_if<ApiError>(&admitted)) return std::move(*error);
  reply.lease = std::move(std::get<std::shared_ptr<void>>(admitted));
  return {};
}

Api::PendingRequest Api::pending_request(HttpRequest request, std::shared_ptr<Reply> reply, ErrorFormat format) const {
  Client client = access_.client_of(request);
  return {.client = std::move(client),
          .body = std::move(request.body),
          .reply = std::move(reply),
          .error_format = format,
          .models = std::shared_ptr<const ModelList>(std::shared_ptr<void>(), &models_)};  // outlives all requests
}

template <class Prepared, class Prepare, class Use>
void Api::prepare_async(PendingRequest request, Prepare prepare, Use use) {
  const auto pending = std::make_shared<PendingRequest>(std::move(request));
  const auto finish = [this, pending, prepare, use](OrApiError<Prepared>& result) {
    if (!pending->reply->is_open()) return;
    ApiError* error = std::get_if<ApiError>(&result);
    if (!error) return use(std::move(std::get<Prepared>(result)), *pending);
    const auto send_error = [pending](const ApiError& why) {
      pending->reply->send(error_response(why, pending->error_format));
    };
    const auto on_loaded = [this, pending, prepare, use, send_error](const OrApiError<ModelRef>& loaded) {
      if (!pending->reply->is_open()) return;
      const bool accepts_any_model = pending->missing_model->empty();  // no model was named: any loaded model will do
      const ApiError* why = std::get_if<ApiError>(&loaded);
      if (why && accepts_any_model && models_.find(""))
        return prepare_async<Prepared>(std::move(*pending), prepare, use);
      if (why) return send_error(*why);
      pending->load_s += elapsed_s(pending->received);
      // Under the requested name, which may differ from the name the model is served under.
      pending->models = ModelList::of(*pending->missing_model, std::get<ModelRef>(loaded));
      prepare_async<Prepared>(std::move(*pending), prepare, use);
    };
    pending->missing_model = error->missing_model;
    const bool waits =
        pending->missing_model && (swaps_models_ ? swap_.ensure_loaded(*pending->missing_model, on_loaded)
                                                 : swap_.wait_for(*pending->missing_model, on_loaded));
    if (!waits) return send_error(*error);
    pending->reply->defer();
  };
  if (pending->body.size() <= limits_.worker_bytes && !may_take_long(pending->body)) {
    OrApiError<Prepared> result = prepare(*pending->models, pending->body);
    return finish(result);
  }
  pending->reply->defer();
  worker_queue_.add({.client = pending->client.name,
                     .reply = pending->reply,
                     .work = [finish, prepare, pending]() -> std::function<void()> {
                       const auto result =
                           std::make_shared<OrApiError<Prepared>>(prepare(*pending->models, pending->body));
                       return [finish, result] { finish(*result); };
                     }});
}

void Api::with_model(std::string name, HttpRequest request, std::shared_ptr<Reply> reply, ErrorFormat format,
                     std::function<void(const ModelRef& model, Reply& reply)> use) {
  prepare_async<ModelRef>(
      pending_request(std::move(request), std::move(reply), format),
      [name = std::move(name)](const ModelList& models, std::string_view) { return find_model(models, name); },
      [use = std::move(use)](const ModelRef& model, const PendingRequest& pending) { use(model, *pending.reply); });
}

void Api::generate(const ApiDialect& dialect, HttpRequest request, std::shared_ptr<Reply> reply) {
  prepare_async<PreparedRequest>(
      pending_request(std::move(request), std::move(reply), dialect.error_format),
      [this, &dialect](const ModelList& models, std::string_view body) {
        return prepare(dialect, models, limits_, body);
      },
      [this, &dialect](PreparedRequest prepared, const PendingRequest& pending) {
        start_generation(dialect, std::move(prepared), pending);
      });
}

void Api::generate_response(HttpRequest request, std::shared_ptr<Reply> reply) {
  PendingRequest pending = pending_request(std::move(request), std::move(reply), ErrorFormat::openai);
  const CacheNamespace owner = pending.client.cache_namespace;
  prepare_async<PreparedRequest>(
      std::move(pending),
      [this, owner](const ModelList& models, std::string_view body) {
        return prepare_response(responses_, owner, models, limits_, body);
      },
      [this](PreparedRequest prepared, const PendingRequest& request) {
        start_generation(responses_dialect(), std::move(prepared), request);
      });
}

void Api::count_response_input(HttpRequest request, std::shared_ptr<Reply> reply) {
  const CacheNamespace owner = access_.client_of(request).cache_namespace;
  respond_from_body(std::move(request), std::move(reply), ErrorFormat::openai,
                    [this, owner](const ModelList& models, std::string_view body, RequestErrors& errors) {
                      return count_response_tokens(responses_, owner, models, limits_, body, errors);
                    });
}

void Api::start_generation(const ApiDialect& dialect, PreparedRequest prepared, const PendingRequest& pending) {
  report_ignored_fields(prepared.ignored_fields, *pending.reply);
  prepared.load_s = pending.load_s;
  prepared.replica = replica_;
  if (prepared.request.keep_alive) keep_alive_.set(prepared.model->name, *prepared.request.keep_alive);
  Generation::start(dialect, std::move(prepared), pending.client, notifier_, worker_queue_, pending.reply);
}

void Api::embed(const EmbeddingDialect& dialect, HttpRequest request, std::shared_ptr<Reply> reply) {
  prepare_async<EmbeddingRequest>(
      pending_request(std::move(request), std::move(reply), dialect.error_format),
      [this, &dialect](const ModelList& models, std::string_view body) {
        return prepare_embeddings(dialect, models, limits_, body);
      },
      [this](EmbeddingRequest prepared, const PendingRequest& pending) {
        report_ignored_fields(prepared.ignored_fields, *pending.reply);
        start_embeddings(std::move(prepared), pending.client, notifier_, worker_queue_, pending.reply);
      });
}

void Api::respond_from_body(HttpRequest request, std::shared_ptr<Reply> reply, ErrorFormat format,
                            BodyResponder respond) {
  struct TextResponse {
    std::string body;
    std::vector<std::string> ignored_fields;
  };
  prepare_async<TextResponse>(
      pending_request(std::move(request), std::move(reply), format),
      [this, respond](const ModelList& models, std::string_view body) -> OrApiError<TextResponse> {
        RequestErrors errors = request_errors(limits_);
        const OrApiError<json::object> result = respond(models, body, errors);
        if (const ApiError* error = std::get_if<ApiError>(&result)) return *error;
        return TextResponse{to_json(std::get<json::object>(result)),  // on the worker thread if it is long
                            errors.ignored_fields()};
      },
      [](TextResponse response, const PendingRequest& pending) {
        report_ignored_fields(response.ignored_fields, *pending.reply);
        pending.reply->send({.body = std::move(response.body)});
      });
}

double Api::uptime_s() const { return elapsed_s(start_); }

void Api::list_available_models(std::function<void(const json::object&)> use) const {
  if (!library_) return use(loaded_models(models_, started_at_s_));
  library_->list([this, use = std::move(use)](const OrApiError<ModelListing>& response) {
    loop_.post([this, use, response] {
      json::object body = loaded_models(models_, started_at_s_);
      const ModelListing* known = std::get_if<ModelListing>(&response);
      const UnloadedModels others = swaps_models_ ? UnloadedModels::include : UnloadedModels::omit;
      if (known) merge_library(body, listing_json(*known), others);
      use(body);
    });
  });
}

void Api::list_models(std::shared_ptr<Reply> reply) const {
  list_available_models([reply = std::move(reply)](const json::object& body) { send_json(body, *reply); });
}

void Api::show_model(std::string name, std::shared_ptr<Reply> reply) const {
  list_available_models([name = std::move(name), reply = std::move(reply)](const json::object& body) {
    for (const json::value& entry : body.at("data").get_array()) {
      if (entry.at("id").get_string() == name) return send_json(entry.get_object(), *reply);
    }
    const ApiError error = model_not_found(fmt::format(
        "model '{}' not found; GET /v1/models lists the available models", std::string_view(name).substr(0, 100)));
    reply->send(error_response(error, ErrorFormat::openai));
  });
}

void Api::show_health(std::shared_ptr<Reply> reply) const {
  int n_active = 0, n_queued = 0;
  for (const ModelRef& model : models_.all()) {
    const EngineStats stats = model->engine->stats();
    n_active += stats.n_prefilling + stats.n_decoding;
    n_queued += stats.n_waiting;
  }
  json::object body = {{"status", !failure_.empty()     ? "error"
                                  : loop_.is_draining() ? "draining"
                                  : is_loading()        ? "loading"
                                                        : "ok"},
                       {"model", models_.names()},
                       {"active_requests", n_active},
                       {"queued_requests", n_queued},
                       {"connections", loop_.n_connections()},
                       {"uptime_seconds", uptime_s()}};
  if (failure_.empty()) return send_json(body, *reply);
  body["error"] = failure_;
  reply->send({.status = 503, .body = to_json(body)});
}

void Api::show_ready(std::shared_ptr<Reply> reply) const {
  if (!failure_.empty()) return reply->send(error_response(http_error(503, failure_), ErrorFormat::openai));
  if (!loop_.is_draining() && !is_loading()) return send_json({{"status", "ready"}}, *reply);
  const ApiError error =
      http_error(503, is_loading() ? "the model is being loaded" : "the server is shutting down; retry later");
  reply->send(error_response(error, ErrorFormat::openai));
}

void Api::show_props(std::shared_ptr<Reply> reply) const {
  json::array models;
  for (const ModelRef& model : models_.all()) models.push_back(model_props(*model));
  json::object body;
  body["build"] = build_;
  body["models"] = std::move(models);
  body["limits"] = limits_json(limits_);
  const std::vector<ModelRef> loaded = models_.all();
  body["default_sampling"] =
      sampling_props(loaded.size() == 1 ? loaded.front()->sampling_defaults.unset : SamplingParams());
  body["key_required"] = access_.needs_key();
  body["swaps_models"] = swaps_models_;
  if (const std::vector<ModelRef> all = models_.all(); !all.empty()) add_llama_props(*all.front(), body);
  send_json(body, *reply);
}

json::object Api::openapi() {
  std::vector<RouteDoc> docs;
  for (const Route& route : routes()) docs.push_back(route.doc());
  return openapi_document(docs);
}

void Api::show_openapi(std::shared_ptr<Reply> reply) const { send_json(openapi(), *reply); }

void Api::show_tokenizer_info(std::shared_ptr<Reply> reply) const {
  if (const ModelRef model = models_.find("")) return send_json(tokenizer_info(*model), *reply);
  reply->send(error_response(http_error(404, "/tokenizer_info needs exactly one loaded model"), ErrorFormat::openai));
}

void Api::show_metrics(std::shared_ptr<Reply> reply) const {
  const ServerCounts counts{.n_requests = n_requests_, .n_connections = loop_.n_connections(), .uptime_s = uptime_s()};
  reply->send({.body = metrics_text(models_, counts, access_.named_keys()),
               .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

}  // namespace zinc
