#include "server/api.h"

#include "server/embeddings.h"
#include "server/generation.h"
#include "server/metrics.h"
#include "server/model_routes.h"
#include "server/openapi.h"
#include "server/page.h"
#include "server/text_routes.h"

namespace zinc {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

// Schemas and grammars take time to read, however short they are.
bool may_have_form(std::string_view body) {
  constexpr std::string_view kNames[] = {"\"response_format\"", "\"json_schema\"", "\"grammar\""};
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

ErrorForm form_of(std::string_view path) {
  return path.starts_with("/v1/messages") ? ErrorForm::anthropic : ErrorForm::openai;
}

json::object limits_json(const ServerLimits& limits) {
  return {{"body_bytes", limits.http.body_bytes},
          {"header_bytes", limits.http.header_bytes},
          {"all_bodies_bytes", limits.all_bodies_bytes},
          {"small_body_bytes", limits.small_body_bytes},
          {"template_kwargs_bytes", limits.template_kwargs_bytes},
          {"connections", limits.connections},
          {"pending_bytes", limits.pending_bytes},
          {"header_seconds", limits.header_time.count()},
          {"body_seconds", limits.body_time.count()},
          {"idle_seconds", limits.idle_time.count()},
          {"write_seconds", limits.write_time.count()},
          {"ping_seconds", limits.ping_time.count()},
          {"drain_seconds", limits.drain_time.count()},
          {"choices", limits.choices},
          {"stop_strings", limits.stop_strings},
          {"stop_string_bytes", limits.stop_string_bytes},
          {"top_logprobs", limits.top_logprobs},
          {"embedding_inputs", limits.embedding_inputs}};
}

// What holds for a field that a request leaves out.
json::object default_sampling() {
  const SamplingParams p;
  json::array breakers;
  for (const std::string& breaker : p.dry_breakers) breakers.emplace_back(breaker);
  json::object out{{"temperature", p.temperature},
                   {"top_k", p.top_k},
                   {"top_p", p.top_p},
                   {"min_p", p.min_p},
                   {"repeat_penalty", p.repeat_penalty},
                   {"frequency_penalty", p.frequency_penalty},
                   {"presence_penalty", p.presence_penalty},
                   {"repeat_last_n", p.repeat_last_n},
                   {"dry_multiplier", p.dry_multiplier},
                   {"dry_base", p.dry_base},
                   {"dry_allowed_length", p.dry_allowed_length},
                   {"dry_last_n", p.dry_last_n}};
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
                   {"supports_system", chat.supports_system()},
                   {"chat_template", chat.source()}};
  for (const auto& member : model.facts) out[member.key()] = member.value();
  return out;
}

void send_json(const json::object& body, Reply& reply) { reply.send({.body = to_json(body)}); }

}  // namespace

struct Api::Route {
  std::string_view method, path, summary;
  bool is_public;
  void (*answer)(Api& api, HttpRequest request, std::shared_ptr<Reply> reply);
  const ApiForm& (*form)() = nullptr;                 // whose fields the body has
  const std::span<const FieldDoc>* fields = nullptr;  // or these

  RouteDoc doc() const {
    RouteDoc out{.method = method, .path = path, .summary = summary, .is_public = is_public};
    if (form) out.fields = form().fields;
    if (fields) out.fields = {*fields};
    return out;
  }
};

// Public: an orchestrator asks these without a key. They say how busy the server is, never what is asked or answered.
const Api::Route Api::kRoutes[] =
    {
        {"GET", "/health", "Whether the server lives, and how busy it is", true,
         [](Api& api, HttpRequest, std::shared_ptr<Reply> reply) { api.show_health(std::move(reply)); }},
        {"GET", "/ready", "200 while requests are taken, 503 while the server drains", true,
         [](Api& api, HttpRequest, std::shared_ptr<Reply> reply) { api.show_ready(std::move(reply)); }},
        {"POST", "/v1/chat/completions", "An answer to a conversation", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           api.generate(chat_form(), std::move(request), std::move(reply));
         },
         chat_form},
        {"POST", "/v1/completions", "A prompt is continued", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           api.generate(completions_form(), std::move(request), std::move(reply));
         },
         completions_form},
        {"POST", "/v1/responses", "An answer to a conversation, as items; nothing is stored", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           api.generate(responses_form(), std::move(request), std::move(reply));
         },
         responses_form},
        {"POST", "/v1/messages", "An answer to a conversation, in Anthropic's form", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           api.generate(messages_form(), std::move(request), std::move(reply));
         },
         messages_form},
        {"POST", "/v1/messages/count_tokens", "How many tokens a conversation has", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           api.answer_with(std::move(request), std::move(reply), ErrorForm::anthropic, count_tokens);
         },
         messages_form},
        {"POST", "/v1/embeddings", "Vectors of texts", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           api.embed(std::move(request), std::move(reply));
         },
         nullptr, &kEmbeddingFields},
        {"GET", "/v1/models", "The models a request may name", false,
         [](Api& api, HttpRequest, std::shared_ptr<Reply> reply) { api.list_models(std::move(reply)); }},
        {"GET", "/models", "The models of this machine and those that can be fetched", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           manage_models(api.library_, ModelAction::list, request, std::move(reply), api.loop_.post);
         }},
        {"POST", "/v1/models/pull", "Begins to fetch a model", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           manage_models(api.library_, ModelAction::pull, request, std::move(reply), api.loop_.post);
         },
         nullptr, &kModelActionFields},
        {"POST", "/v1/models/cancel", "Ends the fetching of a model; what came is kept for the next try", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           manage_models(api.library_, ModelAction::cancel_pull, request, std::move(reply), api.loop_.post);
         },
         nullptr, &kModelActionFields},
        {"POST", "/v1/models/activate", "Loads a model that is here", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           manage_models(api.library_, ModelAction::activate, request, std::move(reply), api.loop_.post);
         },
         nullptr, &kModelActionFields},
        {"POST", "/v1/models/remove", "Removes a model that was fetched", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           manage_models(api.library_, ModelAction::remove, request, std::move(reply), api.loop_.post);
         },
         nullptr, &kModelActionFields},
        {"POST", "/tokenize", "Tokens of a text", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           api.answer_with(std::move(request), std::move(reply), ErrorForm::openai, tokenize);
         },
         nullptr, &kTokenizeFields},
        {"POST", "/detokenize", "Text of tokens", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           api.answer_with(std::move(request), std::move(reply), ErrorForm::openai, detokenize);
         },
         nullptr, &kDetokenizeFields},
        {"POST", "/apply-template", "A chat request as the prompt the model would get", false,
         [](Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
           api.answer_with(std::move(request), std::move(reply), ErrorForm::openai, apply_template);
         },
         chat_form},
        {"GET", "/props", "What the server and its models are set to", false,
         [](Api& api, HttpRequest, std::shared_ptr<Reply> reply) { api.show_props(std::move(reply)); }},
        {"GET", "/metrics", "Counters for Prometheus", false,
         [](Api& api, HttpRequest, std::shared_ptr<Reply> reply) { api.show_metrics(std::move(reply)); }},
        {"GET", "/openapi.json", "This document", false,
         [](Api& api, HttpRequest, std::shared_ptr<Reply> reply) { api.show_openapi(std::move(reply)); }},
};

Api::Api(const ModelList& models, const ApiOptions& options, LoopPort loop)
    : models_(models),
      limits_(options.limits),
      build_(options.build),
      library_(options.library),
      swaps_models_(options.library && options.swaps_models),
      access_(options.access),
      loop_(std::move(loop)),
      bell_(loop_.post),
      text_queue_(loop_.work, loop_.post),
      swap_(models_, library_, loop_.post),
      started_at_s_(
          std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
              .count()) {}

HttpResponse Api::refusal(int status, std::string_view message) {
  return error_response(http_error(status, message), ErrorForm::openai);
}

const Api::Route* Api::find_route(const HttpRequest& request, bool& is_other_method) const {
  const std::string_view method = request.method == "HEAD" ? std::string_view("GET") : request.method;
  for (const Route& route : kRoutes) {
    if (route.path != request.path) continue;
    if (route.method == method) return &route;
    is_other_method = true;
  }
  return nullptr;
}

// Clients are given the address with or without /v1, and some end it with a slash.
std::string Api::meant_path(std::string_view path) {
  while (path.ends_with('/')) path.remove_suffix(1);
  for (const Route& route : kRoutes) {
    const bool is_meant =
        route.path == path || route.path == fmt::format("/v1{}", path) || fmt::format("/v1{}", route.path) == path;
    if (is_meant) return std::string(route.path);
  }
  return {};
}

std::string Api::methods_of(std::string_view path) {
  std::string out = "OPTIONS";
  for (const Route& route : kRoutes) {
    if (route.path == path) out += fmt::format(", {}{}", route.method, route.method == "GET" ? ", HEAD" : "");
  }
  return out;
}

std::optional<ApiError> Api::find_fault(const HttpRequest& head) const {
  if (const auto error = access_.check_page(head)) return error;
  if (head.method == "OPTIONS" || asks_for_page(head)) return {};
  bool is_other_method = false;
  const Route* route = find_route(head, is_other_method);
  if (!route || !route->is_public) {  // also before saying what is not there
    if (const auto error = access_.check_key(head)) return error;
  }
  if (route || names_model(head)) return {};
  if (is_other_method) return http_error(405, fmt::format("{} has no {}", head.path, head.method));
  const std::string meant = meant_path(head.path);
  return http_error(404,
                    fmt::format("there is no '{}'; {}the routes are listed at /openapi.json", head.path.substr(0, 100),
                                meant.empty() ? "" : fmt::format("did you mean {}? ", meant)));
}

std::optional<HttpResponse> Api::refuse_head(const HttpRequest& head) const {
  const std::optional<ApiError> error = find_fault(head);
  if (!error) return {};
  HttpResponse response = error_response(*error, form_of(head.path));
  if (error->status == 405) response.headers.emplace_back("Allow", methods_of(head.path));
  for (HttpHeader& header : access_.cors_headers(head)) response.headers.push_back(std::move(header));
  return response;
}

void Api::handle(HttpRequest request, std::shared_ptr<Reply> reply) {
  ++n_requests_;
  if (auto refused = refuse_head(request)) return reply->send(std::move(*refused));
  reply->headers = access_.cors_headers(request);
  if (request.method == "OPTIONS") return reply->send({.status = 204, .body = {}, .content_type = ""});
  if (auto page = page_response(request)) return reply->send(std::move(*page));
  bool is_other_method = false;
  if (const Route* route = find_route(request, is_other_method)) {
    return route->answer(*this, std::move(request), std::move(reply));
  }
  show_model(percent_decoded(request.path.substr(kModelPrefix.size())), std::move(reply));
}

Api::Question Api::question_of(HttpRequest request, std::shared_ptr<Reply> reply, ErrorForm form) const {
  Client client = access_.client_of(request);
  return {.client = std::move(client),
          .body = std::move(request.body),
          .reply = std::move(reply),
          .form = form,
          .models = std::shared_ptr<const ModelList>(std::shared_ptr<void>(), &models_)};  // it outlives all questions
}

template <class Prepared, class Prepare, class Use>
void Api::prepare_then(Question question, Prepare prepare, Use use) {
  const auto asked = std::make_shared<Question>(std::move(question));
  const auto settle = [this, asked, prepare, use](OrApiError<Prepared>& result) {
    if (!asked->reply->is_open()) return;
    ApiError* error = std::get_if<ApiError>(&result);
    if (!error) return use(std::move(std::get<Prepared>(result)), *asked);
    const auto refuse = [asked](const ApiError& why) { asked->reply->send(error_response(why, asked->form)); };
    const auto go_on = [this, asked, prepare, use, refuse](const OrApiError<ModelRef>& brought) {
      if (!asked->reply->is_open()) return;
      const bool is_any = asked->missing_model->empty();  // who named none is content with what there is
      const ApiError* why = std::get_if<ApiError>(&brought);
      if (why && is_any && models_.find("")) return prepare_then<Prepared>(std::move(*asked), prepare, use);
      if (why) return refuse(*why);
      // By the name it asked for, which may be another one than the model is served as.
      asked->models = ModelList::of(*asked->missing_model, std::get<ModelRef>(brought));
      prepare_then<Prepared>(std::move(*asked), prepare, use);
    };
    asked->missing_model = error->missing_model;
    if (!asked->missing_model || !swaps_models_ || !swap_.bring(*asked->missing_model, go_on)) return refuse(*error);
    asked->reply->takes_time();
  };
  if (asked->body.size() <= limits_.worker_bytes && !may_have_form(asked->body)) {
    OrApiError<Prepared> result = prepare(*asked->models, asked->body);
    return settle(result);
  }
  asked->reply->takes_time();
  text_queue_.add({.client = asked->client.name,
                   .reply = asked->reply,
                   .work = [settle, prepare, asked]() -> std::function<void()> {
                     const auto result = std::make_shared<OrApiError<Prepared>>(prepare(*asked->models, asked->body));
                     return [settle, result] { settle(*result); };
                   }});
}

void Api::generate(const ApiForm& form, HttpRequest request, std::shared_ptr<Reply> reply) {
  prepare_then<PreparedRequest>(
      question_of(std::move(request), std::move(reply), form.error_form),
      [this, &form](const ModelList& models, std::string_view body) { return prepare(form, models, limits_, body); },
      [this, &form](PreparedRequest prepared, const Question& asked) {
        Generation::start(form, std::move(prepared), asked.client, bell_, text_queue_, asked.reply);
      });
}

void Api::embed(HttpRequest request, std::shared_ptr<Reply> reply) {
  prepare_then<EmbeddingRequest>(
      question_of(std::move(request), std::move(reply), ErrorForm::openai),
      [this](const ModelList& models, std::string_view body) { return prepare_embeddings(models, limits_, body); },
      [this](EmbeddingRequest prepared, const Question& asked) {
        start_embeddings(std::move(prepared), asked.client, bell_, asked.reply);
      });
}

void Api::answer_with(HttpRequest request, std::shared_ptr<Reply> reply, ErrorForm form,
                      OrApiError<json::object> (*answer)(const ModelList&, std::string_view)) {
  prepare_then<std::string>(
      question_of(std::move(request), std::move(reply), form),
      [answer](const ModelList& models, std::string_view body) -> OrApiError<std::string> {
        const OrApiError<json::object> result = answer(models, body);
        if (const ApiError* error = std::get_if<ApiError>(&result)) return *error;
        return to_json(std::get<json::object>(result));  // here, as it may be long
      },
      [](std::string body, const Question& asked) { asked.reply->send({.body = std::move(body)}); });
}

double Api::uptime_s() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Api::list_servable(std::function<void(const json::object&)> use) const {
  if (!library_) return use(loaded_models(models_, started_at_s_));
  library_->list([this, use = std::move(use)](const std::variant<LibraryAnswer, ApiError>& answer) {
    loop_.post([this, use, answer] {
      json::object body = loaded_models(models_, started_at_s_);
      const LibraryAnswer* known = std::get_if<LibraryAnswer>(&answer);
      if (known) add_known(body, known->body, swaps_models_ ? OtherModels::listed : OtherModels::left_out);
      use(body);
    });
  });
}

void Api::list_models(std::shared_ptr<Reply> reply) const {
  list_servable([reply = std::move(reply)](const json::object& body) { send_json(body, *reply); });
}

void Api::show_model(std::string name, std::shared_ptr<Reply> reply) const {
  list_servable([name = std::move(name), reply = std::move(reply)](const json::object& body) {
    for (const json::value& entry : body.at("data").get_array()) {
      if (entry.at("id").get_string() == name) return send_json(entry.get_object(), *reply);
    }
    const ApiError error = no_such_model(fmt::format("there is no model '{}'; GET /v1/models lists those there are",
                                                     std::string_view(name).substr(0, 100)));
    reply->send(error_response(error, ErrorForm::openai));
  });
}

void Api::show_health(std::shared_ptr<Reply> reply) const {
  int n_active = 0, n_queued = 0;
  for (const ModelRef& model : models_.all()) {
    const EngineStats stats = model->engine->stats();
    n_active += stats.n_prefilling + stats.n_decoding;
    n_queued += stats.n_waiting;
  }
  send_json({{"status", loop_.is_draining() ? "draining" : "ok"},
             {"model", models_.names()},
             {"active_requests", n_active},
             {"queued_requests", n_queued},
             {"connections", loop_.n_connections()},
             {"uptime_seconds", uptime_s()}},
            *reply);
}

void Api::show_ready(std::shared_ptr<Reply> reply) const {
  if (!loop_.is_draining()) return send_json({{"status", "ready"}}, *reply);
  reply->send(error_response(http_error(503, "the server is draining"), ErrorForm::openai));
}

void Api::show_props(std::shared_ptr<Reply> reply) const {
  json::array models;
  for (const ModelRef& model : models_.all()) models.push_back(model_props(*model));
  json::object body;
  body["build"] = build_;
  body["models"] = std::move(models);
  body["limits"] = limits_json(limits_);
  body["default_sampling"] = default_sampling();
  body["key_required"] = access_.needs_key();
  body["swaps_models"] = swaps_models_;
  send_json(body, *reply);
}

void Api::show_openapi(std::shared_ptr<Reply> reply) const {
  std::vector<RouteDoc> docs;
  for (const Route& route : kRoutes) docs.push_back(route.doc());
  send_json(openapi_document(docs), *reply);
}

void Api::show_metrics(std::shared_ptr<Reply> reply) const {
  const ServerCounts counts{.n_requests = n_requests_, .n_connections = loop_.n_connections(), .uptime_s = uptime_s()};
  reply->send({.body = metrics_text(models_, counts), .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

}  // namespace zinc
