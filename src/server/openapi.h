// The OpenAPI 3.1 document at /openapi.json, made from the same tables that requests are checked against.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "server/fields.h"

namespace zinc {

struct RouteDoc {
  std::string_view method, path, summary;
  bool is_public = false;
  std::vector<std::span<const FieldDoc>> fields = {};  // of the body; none: there is no body
};

json::object openapi_document(const std::vector<RouteDoc>& routes);

}  // namespace zinc
