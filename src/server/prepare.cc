#include "server/prepare.h"

#include <algorithm>

#include "chat/render_messages.h"
#include "server/request_fields.h"

namespace zinc {
namespace {

// Placeholders that clients send if the user has not chosen a model; treated like an absent name.
constexpr std::string_view kPlaceholders[] = {"default", "local-model"};

ApiError unknown_model(const ModelList& models, std::string_view name) {
  if (models.all().empty()) {
    ApiError error = http_error(
        503,
        "no model is loaded: choose one on the chat page, load one with POST /v1/models/activate (GET /models lists "
        "them), or start the server with one: zinc serve MODEL");
    error.missing_model = name;
    return error;
  }
  if (name.empty()) {
    return bad_field("model", fmt::format("'model' must name one of the loaded models: {}", models.names()));
  }
  ApiError error =
      model_not_found(fmt::format("model '{}' not found; loaded models: {}", name.substr(0, 100), models.names()));
  error.missing_model = name;
  return error;
}

// Checked here, so that the response is a 400 even if only one of several prompts is too long.
std::optional<ApiError> check_prompt_lengths(const PreparedRequest& prepared) {
  for (const Request& request : prepared.input.requests) {
    const size_t context = static_cast<size_t>(prepared.model->limits.context);
    if (request.prompt.size() < context) continue;
    return context_exceeded(request.prompt.size(), context, prepared.model->name,
                            prepared.request.is_chat() ? "messages" : "prompt");
  }
  return {};
}

}  // namespace

RequestErrors request_errors(const ServerLimits& limits) {
  return RequestErrors(limits.strict_fields ? UnknownFields::reject : UnknownFields::ignore);
}

OrApiError<json::object> parse_short_body(std::string_view body) {
  constexpr size_t kMaxBytes = 64 << 10;
  if (body.size() > kMaxBytes) return http_error(413, "the body is too long; send only the fields of this route");
  return parse_body(body);
}

OrApiError<json::object> parse_body(std::string_view body) {
  Result<json::value> parsed = parse_json(body);
  if (!parsed.ok()) return http_error(400, "the request body is not valid JSON: " + parsed.error().message);
  if (!parsed.value().is_object()) {
    return http_error(400, fmt::format("the request body is {}; expected a JSON object", json_type(parsed.value())));
  }
  return std::move(parsed.value().get_object());
}

OrApiError<ModelRef> find_model(const ModelList& models, std::string_view name) {
  ModelRef model = models.find(name);
  if (!model && std::ranges::find(kPlaceholders, name) != std::end(kPlaceholders)) {
    name = "";
    model = models.find(name);
  }
  if (!model) return unknown_model(models, name);
  return model;
}

OrApiError<RenderedPrompt> render_request(const ModelList& models, ChatRequest& request, ModelRef& model) {
  OrApiError<ModelRef> found = find_model(models, request.model);
  if (ApiError* error = std::get_if<ApiError>(&found)) return std::move(*error);
  model = std::get<ModelRef>(found);
  OrRequestError<RenderedPrompt> rendered = render(*model, request);
  if (const RequestError* error = std::get_if<RequestError>(&rendered)) return api_error(*error);
  return std::move(std::get<RenderedPrompt>(rendered));
}

OrApiError<PreparedRequest> prepare(const ApiDialect& dialect, const ModelList& models, const ServerLimits& limits,
                                    std::string_view body, const BodyFilter& filter) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  json::object& object = std::get<json::object>(parsed);
  PreparedRequest out;
  RequestErrors errors = request_errors(limits);
  if (filter) filter(object, errors);
  if (!errors.any()) dialect.read(object, limits, errors, out.request);
  if (errors.any()) return *errors.first();
  out.ignored_fields = errors.ignored_fields();
  const OrApiError<ModelRef> model = find_model(models, out.request.model);
  if (const ApiError* error = std::get_if<ApiError>(&model)) return *error;
  out.model = std::get<ModelRef>(model);
  apply_sampling_defaults(out.model->sampling_defaults.of(out.request.thinking), out.request);

  out.echoed = dialect.echo(out.request, object);
  OrRequestError<EngineInput> input = engine_input(*out.model, out.request);
  if (const RequestError* error = std::get_if<RequestError>(&input)) return api_error(*error);
  out.input = std::move(std::get<EngineInput>(input));
  if (std::optional<ApiError> error = check_prompt_lengths(out)) return std::move(*error);
  return out;
}

}  // namespace zinc
