// One route of the API, and the handlers that its rows choose from. api.cc has the routes of OpenAI, Anthropic and zinc
// itself, compatible_routes.cc those of Ollama, llama.cpp and vLLM.
#pragma once

#include "server/api.h"
#include "server/openapi.h"

namespace zinc {

struct Api::Route {
  std::string_view method, path, summary;
  bool is_public;
  void (*handle)(Api& api, HttpRequest request, std::shared_ptr<Reply> reply);
  const ApiDialect& (*dialect)() = nullptr;           // whose fields the body has
  const std::span<const FieldDoc>* fields = nullptr;  // or these

  RouteDoc doc() const {
    RouteDoc out{.method = method, .path = path, .summary = summary, .is_public = is_public};
    if (dialect) out.fields = dialect().fields;
    if (fields) out.fields = {*fields};
    return out;
  }

  // Handlers. Those without a body:
  template <void (Api::*respond)(std::shared_ptr<Reply>) const>
  static void show(Api& api, HttpRequest, std::shared_ptr<Reply> reply) {
    (api.*respond)(std::move(reply));
  }
  template <HttpResponse (*respond)(ResponseStore&, CacheNamespace, std::string_view path)>
  static void kept_response(Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
    reply->send(respond(api.responses_, api.access_.client_of(request).cache_namespace, request.path));
  }
  template <ErrorFormat format, const auto& message>
  static void refuse(Api&, HttpRequest, std::shared_ptr<Reply> reply) {
    reply->send(error_response(http_error(501, message), format));
  }
  // Those with a body:
  template <void (Api::*respond)(HttpRequest, std::shared_ptr<Reply>)>
  static void call(Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
    (api.*respond)(std::move(request), std::move(reply));
  }
  template <const ApiDialect& (*in_dialect)()>
  static void generate(Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
    api.generate(in_dialect(), std::move(request), std::move(reply));
  }
  template <const ApiDialect& (*in_dialect)()>
  static void generate_or_load(Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
    api.generate_or_load(in_dialect(), std::move(request), std::move(reply));
  }
  template <const EmbeddingDialect& in_dialect>
  static void embed(Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
    api.embed(in_dialect, std::move(request), std::move(reply));
  }
  template <auto& respond, ErrorFormat format = ErrorFormat::openai>
  static void from_body(Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
    api.respond_from_body(std::move(request), std::move(reply), format, respond);
  }
  template <ModelAction action>
  static void manage(Api& api, HttpRequest request, std::shared_ptr<Reply> reply) {
    manage_models(api.library_, action, request, std::move(reply), api.loop_.post);
  }
};

}  // namespace zinc
