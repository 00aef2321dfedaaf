#include "server/model_routes.h"

#include <algorithm>
#include <ctime>

#include "server/prepare.h"

namespace zinc {
namespace {

constexpr FieldDoc kFields[] = {
    {"model", "string",
     "Required. The model: an id from GET /models, or for pull also a source such as hf:ORG/REPO:FILE."},
    {"force", "boolean", "remove: unloads a loaded model first. Default false."},
    {"keep_others", "boolean", "activate: keeps the other models loaded. Default false: they are unloaded."},
};

struct ModelActionRequest {
  std::string model;
  bool force = false, keep_others = false;
};

OrApiError<ModelActionRequest> read_action(std::string_view body) {
  OrApiError<json::object> parsed = parse_short_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  RequestErrors errors(UnknownFields::reject);  // a misspelled field must not remove a model
  const FieldReader fields(std::get<json::object>(parsed), "", errors);
  fields.check_known({kFields});
  ModelActionRequest out{.model = fields.required_text("model"),
                         .force = fields.boolean("force").value_or(false),
                         .keep_others = fields.boolean("keep_others").value_or(false)};
  if (errors.any()) return *errors.first();
  return out;
}

struct LibraryResponse {
  json::object body;
  int status = 200;
};

LibraryResponse listing_response(const ModelListing& listing) { return {listing_json(listing)}; }

LibraryResponse pull_response(const PullStatus& pull) {
  return {.body = pull_json(pull), .status = pull.is_running() ? 202 : 200};
}

// "success" is for clients of llama.cpp.
LibraryResponse activate_response(const std::string& id) {
  return {{{"object", "model.activation"}, {"id", id}, {"active", true}, {"success", true}}};
}

LibraryResponse unload_response(const std::string& id) {
  return {{{"object", "model.unload"}, {"id", id}, {"active", false}, {"success", true}}};
}

LibraryResponse remove_response(const RemovedModel& removed) {
  return {{{"object", "model.remove"},
           {"id", removed.id},
           {"removed", true},
           {"unloaded_from_gpu", removed.was_loaded},
           {"cleared_active_selection", removed.was_default},
           {"freed_bytes", removed.n_freed_bytes}}};
}

using SendResponse = std::function<void(HttpResponse)>;

// Sends the result of an action as `write` puts it.
template <class T>
ModelLibrary::Done<T> as_json(SendResponse send, LibraryResponse (*write)(const T& result)) {
  return [send = std::move(send), write](const OrApiError<T>& result) {
    if (const ApiError* error = std::get_if<ApiError>(&result))
      return send(error_response(*error, ErrorFormat::openai));
    const LibraryResponse response = write(std::get<T>(result));
    send({.status = response.status, .body = to_json(response.body)});
  };
}

void start_action(ModelLibrary& library, ModelAction action, ModelActionRequest request, SendResponse send) {
  switch (action) {
    case ModelAction::list:
      return library.list(as_json(std::move(send), listing_response));
    case ModelAction::pull:
      return library.pull(std::move(request.model), as_json(std::move(send), pull_response));
    case ModelAction::cancel_pull:
      return library.cancel_pull(std::move(request.model), as_json(std::move(send), pull_response));
    case ModelAction::activate:
      return library.activate(std::move(request.model), request.keep_others,
                              as_json(std::move(send), activate_response));
    case ModelAction::unload:
      return library.unload(std::move(request.model), as_json(std::move(send), unload_response));
    case ModelAction::remove:
      return library.remove(std::move(request.model), request.force, as_json(std::move(send), remove_response));
  }
}

// Memory, context and cache statistics of a loaded model.
json::object model_stats(const ServedModel& model) {
  const EngineStats stats = model.engine->stats();
  int n_total = 0, n_in_use = 0, n_cached = 0;
  for (const PageUse& use : stats.pages) {
    n_total += use.n_total;
    n_in_use += use.n_in_use;
    n_cached += use.n_cached;
  }
  const auto bytes_of = [&](int n) {
    return n_total > 0 ? model.limits.cache_bytes / static_cast<size_t>(n_total) * static_cast<size_t>(n) : 0;
  };
  return {{"weight_bytes", model.limits.weight_bytes},
          {"cache_bytes", model.limits.cache_bytes},
          {"cache_active_bytes", bytes_of(n_in_use)},
          {"cache_kept_bytes", bytes_of(n_cached)},
          {"context_tokens", model.limits.context},
          {"active_requests", stats.n_prefilling + stats.n_decoding},
          {"queued_requests", stats.n_waiting},
          {"prompt_tokens", stats.n_prompt_tokens},
          {"prompt_tokens_cached", stats.n_cached_tokens},
          {"generated_tokens", stats.n_generated_tokens}};
}

std::string utc_time(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

json::object loaded_model(const ServedModel& model, const std::string& name, int64_t created_s) {
  return {{"id", name},
          {"object", "model"},
          {"created", created_s},
          {"owned_by", "zinc"},
          {"type", "model"},
          {"display_name", name},
          {"root", model.name},
          {"created_at", utc_time(created_s)},
          {"installed", true},
          {"active", true},
          {"max_model_len", model.limits.context},
          {"supports_thinking_toggle", model.prompt.chat_template().supports_thinking_toggle()},
          {"thinking", thinking_json(model.thinking)},
          {"figures", model_stats(model)}};
}

// Copies the model metadata of a library entry.
void copy_metadata(json::object& entry, const json::object& row) {
  for (const std::string_view name :
       {"display_name", "release_date", "homepage_url", "family", "parameters", "quantization", "license", "size_bytes",
        "managed", "fit", "fits_gpu", "required_bytes", "fit_source", "status", "sha256"}) {
    if (const json::value* fact = row.if_contains(name)) entry[name] = *fact;
  }
}

// Whether `name` is the library's id of the model, or the name it is served under.
bool has_name(const json::object& row, const json::value& name) {
  const json::value* served = row.if_contains("served_as");
  return row.at("id") == name || (served && *served == name);
}

void set_page_ids(json::object& body) {
  const json::array& data = body.at("data").get_array();  // invalidated when a field is added
  json::value first, last;
  if (!data.empty()) {
    first = data.front().at("id");
    last = data.back().at("id");
  }
  body["first_id"] = std::move(first);
  body["last_id"] = std::move(last);
}

json::value text_or_null(const std::string& text) { return text.empty() ? json::value() : json::value(text); }

json::object listed_model(const ListedModel& model, const ModelListing& listing) {
  const ModelEntry& entry = model.entry;
  json::object out{{"id", entry.id},
                   {"object", "model"},
                   {"owned_by", "zinc"},
                   {"display_name", entry.name.empty() ? entry.id : entry.name},
                   {"homepage_url", model.homepage_url},
                   {"release_date", text_or_null(entry.released)},
                   {"family", entry.architecture},
                   {"parameters", entry.parameters},
                   {"quantization", entry.quantization},
                   {"license", entry.license},
                   {"size_bytes", entry.n_bytes},
                   {"sha256", entry.sha256},
                   {"installed", !entry.path.empty()},
                   {"managed", entry.location == ModelLocation::zinc},
                   {"active", model.served_as.has_value()},
                   {"served_as", text_or_null(model.served_as.value_or(""))},
                   {"fit", fit_name(entry.fit)},
                   {"fits_gpu", entry.fits_gpu ? json::value(*entry.fits_gpu) : json::value()},
                   {"required_bytes", entry.memory_bytes},
                   {"fit_source", entry.memory_is_exact ? "exact" : "catalog"},
                   {"status", entry.status},
                   {"thinks", entry.thinks},
                   {"recommended_for_chat", entry.is_recommended},
                   {"is_default", entry.is_default},
                   {"activating", listing.activating == entry.id}};
  if (listing.pull && listing.pull->id == entry.id) out["download"] = pull_json(*listing.pull);
  return out;
}

}  // namespace

const std::span<const FieldDoc> kModelActionFields = kFields;

json::object pull_json(const PullStatus& pull) {
  static constexpr std::string_view kStates[] = {"downloading", "verifying", "installed", "cancelled", "failed"};
  json::object out{{"object", "model.pull"}, {"id", pull.id}, {"state", kStates[static_cast<size_t>(pull.state)]}};
  if (pull.state != PullStatus::State::installed || pull.n_bytes > 0) {  // else there was nothing to download
    out["downloaded_bytes"] = pull.n_done;
    out["download_total_bytes"] = pull.n_bytes;
  }
  if (!pull.error.empty()) out["error"] = pull.error;
  return out;
}

json::object listing_json(const ModelListing& listing) {
  json::object out{{"object", "list"},
                   {"memory_bytes", listing.memory.n_bytes},
                   {"memory_available_bytes", listing.memory.n_available},
                   {"activating", listing.activating},
                   {"download", listing.pull ? json::value(pull_json(*listing.pull)) : json::value()}};
  json::array data;
  for (const ListedModel& model : listing.models) data.push_back(listed_model(model, listing));
  out["data"] = std::move(data);
  return out;
}

void manage_models(ModelLibrary* library, ModelAction action, const HttpRequest& request, std::shared_ptr<Reply> reply,
                   std::function<void(std::function<void()>)> post) {
  const auto send_error = [&](const ApiError& error) { reply->send(error_response(error, ErrorFormat::openai)); };
  if (!library) return send_error(http_error(501, "this server does not manage models"));
  ModelActionRequest request_fields;
  if (action != ModelAction::list) {
    OrApiError<ModelActionRequest> read = read_action(request.body);
    if (const ApiError* error = std::get_if<ApiError>(&read)) return send_error(*error);
    request_fields = std::move(std::get<ModelActionRequest>(read));
  }
  start_action(*library, action, std::move(request_fields), [reply, post](HttpResponse response) {
    post([reply, response = std::move(response)] { reply->send(response); });
  });
}

json::object loaded_models(const ModelList& models, int64_t created_s) {
  json::array data;
  for (const ModelRef& model : models.all()) {
    data.push_back(loaded_model(*model, model->name, created_s));
    for (const std::string& alias : model->aliases) data.push_back(loaded_model(*model, alias, created_s));
  }
  json::object body{{"object", "list"}, {"created", created_s}, {"has_more", false}};
  body["data"] = std::move(data);
  set_page_ids(body);
  return body;
}

void merge_library(json::object& body, const json::object& library, UnloadedModels others) {
  for (const std::string_view name : {"memory_bytes", "memory_available_bytes"}) {
    if (const json::value* found = library.if_contains(name)) body[name] = *found;
  }
  const json::value* known = library.if_contains("data");
  if (!known || !known->is_array()) return;
  json::array& data = body.at("data").get_array();
  const size_t n_loaded = data.size();
  for (const json::value& value : known->get_array()) {
    const json::object& row = value.get_object();
    const auto end = data.begin() + static_cast<std::ptrdiff_t>(n_loaded);
    const auto loaded =
        std::find_if(data.begin(), end, [&](const json::value& e) { return has_name(row, e.at("id")); });
    if (loaded != end) {
      copy_metadata(loaded->get_object(), row);
    } else if (others == UnloadedModels::include && row.at("installed").as_bool()) {
      json::object entry{
          {"id", row.at("id")}, {"object", "model"}, {"created", body.at("created")},
          {"owned_by", "zinc"}, {"type", "model"},   {"created_at", utc_time(body.at("created").get_int64())},
          {"installed", true},  {"active", false}};
      copy_metadata(entry, row);
      data.push_back(std::move(entry));
    }
  }
  set_page_ids(body);
}

}  // namespace zinc
