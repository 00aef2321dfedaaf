// The OpenAPI 3.1 document at /openapi.json, built from the tables that requests are validated against. docs/api.md and
// web/src/api_types.ts are generated from it (tools/make_api_docs.py).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "server/fields.h"

namespace zinc {

struct RouteDoc {
  std::string_view method, path, summary;
  bool is_public = false;
  std::vector<std::span<const FieldDoc>> fields = {};  // of the request body; empty: no body
};

json::object openapi_document(const std::vector<RouteDoc>& routes);

}  // namespace zinc
