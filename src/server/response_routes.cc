#include "server/response_routes.h"

#include "base/sanitize_for_terminal.h"

namespace zinc {
namespace {

constexpr std::string_view kResponsesPath = "/v1/responses/";

// The response with an item: item ids are KIND_RESPONSE_INDEX.
std::string response_of_item(std::string_view item) {
  const size_t first = item.find('_'), last = item.rfind('_');
  if (first == item.npos || first == last) return {};
  return fmt::format("resp_{}", item.substr(first + 1, last - first - 1));
}

const json::value* find_item(const json::array& items, std::string_view id) {
  for (const json::value& item : items) {
    const json::value* found = item.get_object().if_contains("id");
    if (found && found->is_string() && found->get_string() == id) return &item;
  }
  return nullptr;
}

json::array input_items(const json::value& input) {
  if (input.is_array()) return input.get_array();
  return {json::object{{"type", "message"}, {"role", "user"}, {"content", input}}};
}

// Where references are resolved: the caller's kept responses, and the bytes that the resolved input may have.
struct ReferenceScope {
  ResponseStore& store;
  CacheNamespace owner;
  size_t max_bytes;
};

// Replaces item references by the items.
void resolve_items(const ReferenceScope& scope, json::array& items, RequestErrors& errors) {
  size_t n_bytes = 0;
  for (json::value& item : items) {
    const json::object* object = item.if_object();
    const json::value* type = object ? object->if_contains("type") : nullptr;
    if (!type || *type != "item_reference") continue;
    const json::value* id = object->if_contains("id");
    const std::string name = id && id->is_string() ? text_of(id->get_string()) : "";
    const auto kept = scope.store.find(scope.owner, response_of_item(name));
    const json::value* found = kept ? find_item(kept->output(), name) : nullptr;
    if (!found) {
      return errors.add("input", "item '{}' not found: its response was not stored, or has expired",
                        sanitize_for_terminal(name));
    }
    n_bytes += to_json(*found).size();
    if (n_bytes > scope.max_bytes) {
      ApiError error =
          http_error(413, fmt::format("the items that 'input' refers to exceed {} bytes", scope.max_bytes));
      error.param = "input";
      return errors.add(std::move(error));
    }
    item = json::value(*found);
  }
}

// Replaces previous_response_id and item references by the items they stand for.
void resolve_references(const ReferenceScope& scope, json::object& body, RequestErrors& errors) {
  const json::value* input = body.if_contains("input");
  if (!input || (!input->is_string() && !input->is_array())) return;  // the dialect's reader reports it
  json::array items = input_items(*input);
  resolve_items(scope, items, errors);
  const json::value* previous = body.if_contains("previous_response_id");
  if (previous && !previous->is_string() && !previous->is_null()) {
    return errors.add("previous_response_id", "'previous_response_id' must be a string");
  }
  if (previous && previous->is_string()) {
    const std::string id = text_of(previous->get_string());
    const auto kept = scope.store.find(scope.owner, id);
    if (!kept) {
      return errors.add(
          {.message = fmt::format("previous response '{}' not found: it was not stored, or has expired{}",
                                  sanitize_for_terminal(id), scope.store.is_off() ? " (--responses-kept is 0)" : ""),
           .param = "previous_response_id",
           .code = "previous_response_not_found"});
    }
    json::array all = kept->input;
    all.insert(all.end(), kept->output().begin(), kept->output().end());
    all.insert(all.end(), items.begin(), items.end());
    items = std::move(all);
  }
  body["input"] = std::move(items);
}

// Items as /input_items lists them: with a type, an id and content parts.
json::array listed_items(json::array items, std::string_view response_id) {
  int index = 0;
  for (json::value& value : items) {
    json::object& item = value.get_object();
    if (!item.contains("type")) item["type"] = "message";
    if (!item.contains("id")) item["id"] = fmt::format("in_{}_{}", response_id, index);
    ++index;
    json::value* content = item.if_contains("content");
    if (item.at("type") != "message" || !content || !content->is_string()) continue;
    const json::value* role = item.if_contains("role");
    const bool is_output = role && *role == "assistant";
    json::object part{{"type", is_output ? "output_text" : "input_text"}, {"text", *content}};
    if (is_output) part["annotations"] = json::array();
    *content = json::array{std::move(part)};
  }
  return items;
}

bool wants_store(const json::object& body) {
  const json::value* store = body.if_contains("store");
  return !store || *store != false;
}

HttpResponse response_not_found(std::string_view id) {
  return error_response(http_error(404, fmt::format("response '{}' not found: it was not stored, or has expired",
                                                    sanitize_for_terminal(id))),
                        ErrorFormat::openai);
}

std::string_view id_in_path(std::string_view path) {
  path.remove_prefix(std::min(kResponsesPath.size(), path.size()));
  return path.substr(0, path.find('/'));
}

}  // namespace

OrApiError<PreparedRequest> prepare_response(ResponseStore& store, CacheNamespace owner, const ModelList& models,
                                             const ServerLimits& limits, std::string_view body) {
  const auto input = std::make_shared<json::array>();
  bool is_kept = false;
  OrApiError<PreparedRequest> prepared =
      prepare(responses_dialect(), models, limits, body, [&](json::object& object, RequestErrors& errors) {
        resolve_references({store, owner, limits.http.body_bytes}, object, errors);
        is_kept = !store.is_off() && wants_store(object);
        if (!is_kept) object["store"] = false;  // repeated in the response
        if (is_kept && object.contains("input")) *input = input_items(object.at("input"));
      });
  PreparedRequest* ready = std::get_if<PreparedRequest>(&prepared);
  if (!ready || !is_kept) return prepared;
  ready->on_response = [&store, owner, input](const json::object& response) {
    const std::string id = text_of(response.at("id").get_string());
    KeptResponse kept{.id = id, .input = listed_items(std::move(*input), id), .response = response};
    kept.n_bytes = to_json(kept.input).size() + to_json(kept.response).size();
    store.put(owner, std::move(kept));
  };
  return prepared;
}

OrApiError<json::object> count_response_tokens(ResponseStore& store, CacheNamespace owner, const ModelList& models,
                                               const ServerLimits& limits, std::string_view body,
                                               RequestErrors& errors) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  json::object& object = std::get<json::object>(parsed);
  resolve_references({store, owner, limits.http.body_bytes}, object, errors);
  ChatRequest request;
  if (!errors.any()) responses_dialect().read(object, limits, errors, request);
  if (errors.any()) return *errors.first();
  ModelRef model = nullptr;
  OrApiError<RenderedPrompt> rendered = render_request(models, request, model);
  if (ApiError* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  return json::object{{"object", "response.input_tokens"},
                      {"input_tokens", model->prompt.encode(std::get<RenderedPrompt>(rendered)).size()}};
}

HttpResponse show_response(ResponseStore& store, CacheNamespace owner, std::string_view path) {
  const auto kept = store.find(owner, id_in_path(path));
  if (!kept) return response_not_found(id_in_path(path));
  return {.body = to_json(kept->response)};
}

HttpResponse delete_response(ResponseStore& store, CacheNamespace owner, std::string_view path) {
  const std::string_view id = id_in_path(path);
  if (!store.erase(owner, id)) return response_not_found(id);
  return {.body = to_json(json::object{{"id", id}, {"object", "response"}, {"deleted", true}})};
}

// Newest first, as in OpenAI's API.
HttpResponse list_input_items(ResponseStore& store, CacheNamespace owner, std::string_view path) {
  const auto kept = store.find(owner, id_in_path(path));
  if (!kept) return response_not_found(id_in_path(path));
  json::array data(kept->input.rbegin(), kept->input.rend());
  json::object out{{"object", "list"}, {"has_more", false}};
  out["first_id"] = data.empty() ? json::value() : data.front().at("id");
  out["last_id"] = data.empty() ? json::value() : data.back().at("id");
  out["data"] = std::move(data);
  return {.body = to_json(out)};
}

}  // namespace zinc
