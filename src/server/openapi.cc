#include "server/openapi.h"

#include <cctype>

namespace zinc {
namespace {

json::object body_schema(const RouteDoc& route) {
  json::object properties;
  for (const std::span<const FieldDoc>& list : route.fields) {
    for (const FieldDoc& field : list) {
      json::object property{{"description", field.text}};
      if (!field.type.empty()) property["type"] = json::array{field.type, "null"};
      properties[field.name] = std::move(property);
    }
  }
  json::object out{{"type", "object"}, {"additionalProperties", true}};
  out["properties"] = std::move(properties);
  return out;
}

json::object operation(const RouteDoc& route) {
  json::object out{{"summary", route.summary}};
  if (!route.fields.empty()) {
    json::object media;
    media["schema"] = body_schema(route);
    json::object content;
    content["application/json"] = std::move(media);
    json::object body{{"required", true}};
    body["content"] = std::move(content);
    out["requestBody"] = std::move(body);
  }
  out["responses"] = {{"200", {{"description", "The response."}}},
                      {"default", {{"description", "An error: {\"error\": {message, type, param, code}}."}}}};
  if (route.is_public) out["security"] = json::array();
  return out;
}

}  // namespace

json::object openapi_document(const std::vector<RouteDoc>& routes) {
  json::object paths;
  for (const RouteDoc& route : routes) {
    std::string method(route.method);
    for (char& c : method) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (!paths.contains(route.path)) paths[route.path] = json::object();
    paths[route.path].get_object()[method] = operation(route);
  }
  json::object out{{"openapi", "3.1.0"}, {"info", {{"title", "zinc"}, {"version", "1"}}}};
  out["paths"] = std::move(paths);
  out["components"] = {{"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}};
  out["security"] = json::array{json::object{{"key", json::array()}}};
  return out;
}

}  // namespace zinc
