#include "server/ollama_routes.h"

#include <algorithm>

#include "base/sha256.h"
#include "server/model_routes.h"
#include "server/ollama_fields.h"

namespace zinc {
namespace {

constexpr FieldDoc kModelDocs[] = {
    {"model", "string", "Required. The model, with or without the tag :latest."},
    {"name", "string", "Older name of model."},
    {"verbose", "boolean", "No effect."},
    {"stream", "boolean", "No effect."},
};
constexpr FieldDoc kPullDocs[] = {
    {"model", "string", "Required. A model of the catalog, or a source such as hf:ORG/REPO."},
    {"name", "string", "Older name of model."},
    {"stream", "boolean", "One JSON object per line with the progress. Default true."},
    {"insecure", "boolean", "No effect."},
};
constexpr size_t kMaxLoadBody = 4096;  // longer bodies have an input
constexpr std::chrono::milliseconds kPollInterval{300};

std::string text_at(const json::object& object, std::string_view name) {
  const json::value* found = object.if_contains(name);
  return found && found->is_string() ? text_of(found->get_string()) : "";
}

int64_t number_at(const json::object& object, std::string_view name) {
  const json::value* found = object.if_contains(name);
  return found && found->is_number() ? found->to_number<int64_t>() : 0;
}

std::string name_digest(std::string_view name) { return sha256_hex(std::as_bytes(std::span(name))); }

// The hash of the file if it is known, else of the model's name; clients show its first digits.
std::string digest_of(const json::object& entry) {
  const std::string hash = text_at(entry, "sha256");
  return hash.empty() ? name_digest(text_at(entry, "id")) : hash;
}

json::object details_of(const json::object& entry, const ServedModel* loaded) {
  std::string family = text_at(entry, "family");
  if (family.empty() && loaded) family = text_at(loaded->facts, "architecture");
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", family},
          {"families", json::array{family}},
          {"parameter_size", text_at(entry, "parameters")},
          {"quantization_level", text_at(entry, "quantization")}};
}

json::object tag_of(const json::object& entry, const ServedModel* loaded) {
  const int64_t file_bytes = number_at(entry, "size_bytes");
  json::object out{{"name", entry.at("id")},
                   {"model", entry.at("id")},
                   {"modified_at", text_at(entry, "created_at")},
                   {"size", file_bytes == 0 && loaded ? static_cast<int64_t>(loaded->limits.weight_bytes) : file_bytes},
                   {"digest", digest_of(entry)}};
  out["details"] = details_of(entry, loaded);
  return out;
}

json::array capabilities_of(const ServedModel* loaded) {
  json::array out{"completion"};
  if (!loaded) return out;
  if (loaded->prompt.chat_template().supports_tools()) out.emplace_back("tools");
  if (loaded->thinking.kind != ThinkingSupport::Kind::none) out.emplace_back("thinking");
  if (loaded->tokenizer.fim_tokens()) out.emplace_back("insert");
  return out;
}

json::object model_info_of(const ServedModel& model) {
  const std::string family = text_at(model.facts, "architecture");
  json::object out{{"general.architecture", family}, {"tokenizer.ggml.vocab_size", model.limits.n_vocab}};
  out[family + ".context_length"] =
      model.facts.contains("trained_context") ? model.facts.at("trained_context") : json::value(model.limits.context);
  out[family + ".embedding_length"] = model.limits.embedding_dim;
  return out;
}

// "temperature 0.2", one per line.
std::string parameters_of(const ServedModel& model) {
  const json::value* sampling = model.facts.if_contains("recommended_sampling");
  std::string out;
  if (!sampling || !sampling->is_object()) return out;
  for (const auto& member : sampling->get_object()) {
    if (member.value().is_number())
      out += fmt::format("{} {}\n", std::string_view(member.key()), to_json(member.value()));
  }
  return out;
}

}  // namespace

const std::span<const FieldDoc> kOllamaModelFields = kModelDocs, kOllamaPullFields = kPullDocs;

json::object ollama_tags(const json::object& models) {
  json::array list;
  for (const json::value& entry : models.at("data").get_array()) list.push_back(tag_of(entry.get_object(), nullptr));
  json::object out;
  out["models"] = std::move(list);
  return out;
}

json::object ollama_ps(const ModelList& models, const json::object& listed, const KeepAlive& keep_alive) {
  constexpr std::chrono::hours kFarAway{24 * 365 * 100};  // a model that stays loaded
  json::array list;
  for (const json::value& value : listed.at("data").get_array()) {
    const json::object& entry = value.get_object();
    const std::string name = text_at(entry, "id");
    const ModelRef loaded = models.find(name);
    if (!loaded) continue;
    json::object row = tag_of(entry, loaded.get());
    const size_t n_bytes = loaded->limits.weight_bytes + loaded->limits.cache_bytes;
    const bool is_on_gpu = text_at(loaded->facts, "backend") == "cuda" || text_at(loaded->facts, "backend") == "vulkan";
    row["size"] = n_bytes;
    row["size_vram"] = is_on_gpu ? n_bytes : 0;
    row["context_length"] = loaded->limits.context;
    row["expires_at"] = ollama_time(keep_alive.expires_at(name).value_or(std::chrono::system_clock::now() + kFarAway));
    list.push_back(std::move(row));
  }
  json::object out;
  out["models"] = std::move(list);
  return out;
}

json::object ollama_show(const json::object& entry, const ServedModel* loaded) {
  json::object out{{"modelfile", fmt::format("FROM {}\n", text_at(entry, "id"))},
                   {"license", text_at(entry, "license")},
                   {"modified_at", text_at(entry, "created_at")},
                   {"parameters", loaded ? parameters_of(*loaded) : ""},
                   {"template", loaded ? loaded->prompt.chat_template().source() : ""}};
  out["details"] = details_of(entry, loaded);
  out["model_info"] =
      loaded ? model_info_of(*loaded) : json::object{{"general.architecture", text_at(entry, "family")}};
  out["capabilities"] = capabilities_of(loaded);
  return out;
}

std::optional<OllamaLoadRequest> read_ollama_load(const ApiDialect& dialect, const ServerLimits& limits,
                                                  std::string_view body) {
  if (body.size() > kMaxLoadBody) return std::nullopt;
  const OrApiError<json::object> parsed = parse_body(body);
  if (std::holds_alternative<ApiError>(parsed)) return std::nullopt;
  const json::object& object = std::get<json::object>(parsed);
  const json::value* given = object.if_contains(&dialect == &ollama_chat_dialect() ? "messages" : "prompt");
  const bool is_empty = !given || given->is_null() || (given->is_array() && given->get_array().empty()) ||
                        (given->is_string() && given->get_string().empty());
  if (!is_empty || object.contains("suffix")) return std::nullopt;
  RequestErrors errors = request_errors(limits);
  const FieldReader fields(object, "", errors);
  fields.check_known(dialect.fields, dialect.unsupported);
  OllamaLoadRequest out{.model = read_ollama_model(fields), .keep_alive = read_keep_alive(fields)};
  if (errors.any()) return std::nullopt;
  out.ignored_fields = errors.ignored_fields();
  return out;
}

OrApiError<OllamaModelRequest> read_ollama_model_request(std::span<const FieldDoc> known, const ServerLimits& limits,
                                                         std::string_view body) {
  OrApiError<json::object> parsed = parse_short_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  RequestErrors errors = request_errors(limits);
  const FieldReader fields(std::get<json::object>(parsed), "", errors);
  fields.check_known({known});
  OllamaModelRequest out{.model = read_ollama_model(fields), .stream = fields.boolean("stream").value_or(true)};
  if (errors.any()) return *errors.first();
  if (out.model.empty()) return bad_field("model", "'model' is missing");
  out.ignored_fields = errors.ignored_fields();
  return out;
}

void OllamaPull::start() {
  reply_->defer();
  poll(/*is_first=*/true);
}

// The first call starts the download; asking again after it has failed would start another one.
void OllamaPull::poll(bool is_first) {
  const auto done = [self = shared_from_this(), is_first](const OrApiError<PullStatus>& pull) {
    self->loop_.post([self, is_first, pull] { self->on_status(pull, is_first); });
  };
  if (is_first) return library_.pull(request_.model, done);
  library_.list([done](const OrApiError<ModelListing>& response) {
    if (const ApiError* error = std::get_if<ApiError>(&response)) return done(*error);
    done(std::get<ModelListing>(response).pull.value_or(PullStatus()));
  });
}

void OllamaPull::on_status(const OrApiError<PullStatus>& response, bool is_first) {
  using enum PullStatus::State;
  if (!reply_->is_open()) return;
  if (const ApiError* error = std::get_if<ApiError>(&response)) return finish(error);
  const PullStatus& pull = std::get<PullStatus>(response);
  if (pull.id != request_.model) {
    const ApiError error = http_error(503, "another download took its place; try again");
    return finish(&error);
  }
  if (is_first) write({{"status", "pulling manifest"}});
  if (pull.state == installed) return finish(nullptr);
  if (pull.state == failed || pull.state == cancelled) {
    const ApiError error = http_error(500, pull.state == failed ? pull.error : "the download was cancelled");
    return finish(&error);
  }
  if (pull.state == verifying) write({{"status", "verifying sha256 digest"}});
  if (pull.state == downloading && pull.n_bytes > 0) {
    write({{"status", "pulling " + request_.model},
           {"digest", "sha256:" + name_digest(request_.model)},
           {"total", pull.n_bytes},
           {"completed", pull.n_done}});
  }
  loop_.run_after(kPollInterval, [self = shared_from_this()] {
    if (self->reply_->is_open()) self->poll(/*is_first=*/false);
  });
}

void OllamaPull::write(json::object line) {
  std::string text = to_json(line) + "\n";
  if (!request_.stream || text == last_line_) return;
  if (!is_streaming_) reply_->start_stream("application/x-ndjson");
  is_streaming_ = true;
  reply_->write(text);
  last_line_ = std::move(text);
}

void OllamaPull::finish(const ApiError* error) {
  if (!is_streaming_ && error) return reply_->send(error_response(*error, ErrorFormat::ollama));
  if (!is_streaming_) return reply_->send({.body = to_json(json::object{{"status", "success"}})});
  write(error ? error_body(*error, ErrorFormat::ollama) : json::object{{"status", "success"}});
  reply_->end_stream();
}

}  // namespace zinc
