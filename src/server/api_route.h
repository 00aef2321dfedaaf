// One route of the API. api.cc has the routes of OpenAI, Anthropic and zinc itself, compatible_routes.cc those of
// Ollama, llama.cpp and vLLM.
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
};

}  // namespace zinc
