// zinc debug openapi: the OpenAPI document of `zinc serve` on stdout, without a server. tools/make_api_docs.py
// generates the tables of docs/api.md and web/src/api_types.ts from it.
#include <fmt/core.h>

#include "base/json.h"
#include "cli/command.h"
#include "server/api.h"
#include "server/extension_fields.h"
#include "server/request_fields.h"

namespace zinc::command_debug_openapi {
namespace {

json::array names_of(std::span<const FieldDoc> fields) {
  json::array out;
  for (const FieldDoc& field : fields) out.emplace_back(field.name);
  return out;
}

json::object unsupported_of(const ApiDialect& dialect) {
  json::object out;
  for (const UnsupportedField& field : dialect.unsupported) out[field.name] = field.why;
  return out;
}

// Extensions that /openapi.json does not have: which fields several routes share, and which are rejected with a reason.
Status run() {
  json::object document = Api::openapi();
  json::object groups;
  groups["sampling"] = names_of(kSamplingFields);
  groups["thinking"] = names_of(kThinkingFields);
  groups["extensions"] = names_of(kExtensionFields);
  document["x-field-groups"] = std::move(groups);
  json::object unsupported;
  unsupported["/v1/chat/completions"] = unsupported_of(chat_dialect());
  unsupported["/v1/completions"] = unsupported_of(completions_dialect());
  unsupported["/v1/responses"] = unsupported_of(responses_dialect());
  unsupported["/v1/messages"] = unsupported_of(messages_dialect());
  unsupported["/api/chat"] = unsupported_of(ollama_chat_dialect());
  document["x-unsupported-fields"] = std::move(unsupported);
  fmt::print("{}\n", to_pretty_json(document));
  return ok_status();
}

std::function<Status()> declare(CLI::App&) {
  return [] { return run(); };
}

}  // namespace

extern const Command k_command_debug_openapi = {
    .path = "debug openapi", .summary = "print the OpenAPI document of the server", .declare = declare};

}  // namespace zinc::command_debug_openapi
