#include "server/prepare.h"

#include <algorithm>

#include "engine/thinking_budget.h"
#include "server/random_id.h"
#include "server/render_messages.h"
#include "server/request_fields.h"
#include "server/structured_output.h"
#include "text/generic_tools.h"

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

// OpenAI's newer name for the system role, which most templates do not support.
void rename_developer(const ServedModel& model, json::array& messages) {
  if (model.prompt.chat_template().source().find("developer") != std::string::npos) return;
  for (json::value& message : messages) {
    json::value& role = message.at("role");
    if (role.get_string() == "developer") role = "system";
  }
}

std::string text_field(const json::object& message, std::string_view name) {
  const json::value* text = message.if_contains(name);
  return text && text->is_string() ? text_of(text->get_string()) : std::string();
}

// The assistant prefix follows the generation prompt verbatim: no template trims or closes it.
void append_assistant_prefix(const ServedModel& model, const json::object& message, ChatRequest& request,
                             RenderedPrompt& prompt) {
  const ThinkingMarkers& markers = model.tool_format->thinking;
  const bool is_open = prompt_opens_reasoning(*model.tool_format, prompt.text());
  const std::string content = text_field(message, "content");
  std::string reasoning = text_field(message, "reasoning_content");
  if (markers.close.empty() || (!is_open && request.thinking == false)) reasoning.clear();
  if (!reasoning.empty() && !is_open) prompt.append(fmt::format("{}\n", markers.open), /*from_input=*/false);
  prompt.append(reasoning, /*from_input=*/true);
  const bool has_reasoning = is_open || !reasoning.empty();
  request.reasoning_is_open = has_reasoning && content.empty();
  if (has_reasoning && !content.empty())
    prompt.append(fmt::format("\n{}{}", markers.close, markers.before_answer), /*from_input=*/false);
  prompt.append(content, /*from_input=*/true);
}

// Turns end with EOS tokens, which only the template can produce. A later prompt may diverge after each of them.
std::vector<int> turn_boundaries(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt) {
  std::vector<int> out;
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    if (tokenizer.is_eog(prompt[i])) out.push_back(static_cast<int>(i) + 1);
  }
  return out;
}

// The parser must see reasoning and tool call markers that are control tokens. Where none can occur, control tokens
// produce no text.
bool needs_control_tokens(const ServedModel& model, const ChatRequest& request) {
  if (!request.tools.is_null()) return true;
  const std::string_view open = model.tool_format->thinking.open;
  std::vector<TokenId> tokens;
  model.tokenizer.encode(open, {.add_special = false, .parse_special = true}, tokens);
  return !tokens.empty() && model.tokenizer.is_control(tokens.front());
}

// Keeps the end of a prompt that is longer than the request wants.
void truncate_prompt(const ChatRequest& request, const ServedModel& model, std::vector<TokenId>& prompt) {
  const int n_output = std::max(request.max_tokens, 1);
  int n_kept = request.max_prompt_tokens;
  if (n_kept == 0) return;
  if (n_kept == ChatRequest::kWholeContext) n_kept = std::max(model.limits.context - n_output, 1);
  const ptrdiff_t n_dropped = std::ssize(prompt) - n_kept;
  if (n_dropped > 0) prompt.erase(prompt.begin(), prompt.begin() + n_dropped);
}

std::optional<ApiError> prepare_chat(PreparedRequest& out) {
  const ServedModel& model = *out.model;
  const Result<ToolSchemas> tools = out.request.tools.is_null() ? ToolSchemas() : ToolSchemas::read(out.request.tools);
  if (!tools.ok()) return bad_field("tools", tools.error().message);
  OrApiError<RenderedPrompt> rendered =
      out.request.drop_oldest_messages ? render_newest(model, out.request) : render(model, out.request);
  if (ApiError* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  const RenderedPrompt& prompt = std::get<RenderedPrompt>(rendered);
  const bool starts_in_reasoning =
      out.request.reasoning_is_open || prompt_opens_reasoning(*model.tool_format, prompt.text());
  out.prompts.push_back(model.prompt.encode(prompt));
  truncate_prompt(out.request, model, out.prompts.front());
  out.boundaries = turn_boundaries(model.tokenizer, out.prompts.front());
  out.parser = {.tools = tools.value(),
                .thinking = out.request.thinking.value_or(true),
                .reasoning_open = starts_in_reasoning,
                .buffer_calls = !out.request.stream_tool_arguments};
  out.options.thinking = make_thinking_budget(*model.tool_format, model.tokenizer,
                                              {.max_tokens = out.request.thinking_budget,
                                               .starts_open = starts_in_reasoning,
                                               .may_call_tools = !out.request.tools.is_null()});
  out.options.show_control = out.request.show_special || needs_control_tokens(model, out.request);
  // A model that is not known to think would choose between two unlikely tokens: the first of the constraint and a
  // thinking marker.
  const bool may_reason = out.request.thinking.value_or(model.thinking.kind != ThinkingSupport::Kind::none);
  const ReasoningPosition reasoning{.starts_open = starts_in_reasoning, .is_allowed = may_reason};
  if (std::optional<ApiError> error = constrain_chat(out, tools.value(), reasoning)) return error;
  out.request.messages = {};  // no longer needed; frees memory while generating
  out.request.tools = nullptr;
  out.request.template_kwargs = {};
  out.request.response_format.schema = nullptr;
  out.request.response_format.grammar = {};
  return {};
}

void encode_text(const Tokenizer& tokenizer, std::string_view text, std::vector<TokenId>& out) {
  tokenizer.encode(text, {.add_special = false, .parse_special = false}, out);
}

// The order that code models are trained with: other files, prefix, suffix, middle. Text never becomes a special token.
std::vector<TokenId> fim_prompt(const Tokenizer& tokenizer, const ChatRequest& request, std::string_view prefix) {
  const FimTokens& fim = *tokenizer.fim_tokens();
  std::vector<TokenId> out;
  if (tokenizer.adds_bos()) out.push_back(*tokenizer.bos());
  for (const ExtraFile& file : request.extra_files) {
    if (fim.file_separator) out.push_back(*fim.file_separator);
    encode_text(tokenizer, fmt::format("{}\n{}\n", file.name, file.text), out);
  }
  out.push_back(fim.prefix);
  encode_text(tokenizer, prefix, out);
  out.push_back(fim.suffix);
  encode_text(tokenizer, *request.suffix, out);
  out.push_back(fim.middle);
  return out;
}

std::optional<ApiError> prepare_infill(PreparedRequest& out) {
  const Tokenizer& tokenizer = out.model->tokenizer;
  if (!tokenizer.fim_tokens()) {
    return unsupported_field("suffix", fmt::format("'{}' has no tokens for fill-in-the-middle; use a code model such "
                                                   "as Qwen2.5-Coder",
                                                   out.model->name));
  }
  const auto* prefix = std::get_if<std::string>(&out.request.prompts.front());
  if (out.request.prompts.size() != 1 || !prefix) {
    return bad_field("suffix", "'suffix' requires that 'prompt' is one string");
  }
  out.prompts.push_back(fim_prompt(tokenizer, out.request, *prefix));
  return {};
}

std::optional<ApiError> prepare_completion(PreparedRequest& out) {
  if (out.request.suffix) return prepare_infill(out);
  const ChatRequest& request = out.request;
  const Tokenizer& tokenizer = out.model->tokenizer;
  for (const RawPrompt& prompt : request.prompts) {
    std::vector<TokenId> tokens;
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
      tokens = *ids;
    } else {
      tokenizer.encode(std::get<std::string>(prompt),
                       {.add_special = request.add_special, .parse_special = request.parse_special}, tokens);
    }
    for (const TokenId id : tokens) {
      if (id < 0 || id >= tokenizer.n_vocab()) {
        return bad_field("prompt", fmt::format("'prompt' contains token id {}; the model's vocabulary is 0 to {}", id,
                                               tokenizer.n_vocab() - 1));
      }
    }
    if (tokens.empty()) return bad_field("prompt", "the prompt is empty, and this model has no BOS token");
    truncate_prompt(request, *out.model, tokens);
    if (request.echo) out.prompt_texts.push_back(tokenizer.decode(tokens));
    out.prompts.push_back(std::move(tokens));
  }
  out.options.show_control = request.show_special;
  return constrain_completion(out);
}

// Checked here, so that the response is a 400 even if only one of several prompts is too long.
std::optional<ApiError> check_prompt_lengths(const PreparedRequest& prepared) {
  for (const std::vector<TokenId>& prompt : prepared.prompts) {
    const size_t context = static_cast<size_t>(prepared.model->limits.context);
    if (prompt.size() < context) continue;
    return context_exceeded(prompt.size(), context, prepared.model->name,
                            prepared.request.is_chat() ? "messages" : "prompt");
  }
  return {};
}

std::shared_ptr<const TokenSet> token_set_of(const std::vector<TokenId>& tokens, int n_vocab) {
  if (tokens.empty()) return nullptr;
  auto out = std::make_shared<TokenSet>(static_cast<size_t>(n_vocab));
  for (const TokenId id : tokens) out->insert(id);
  return out;
}

std::optional<ApiError> check_token_ids(std::string_view field, const std::vector<TokenId>& tokens, int n_vocab) {
  for (const TokenId id : tokens) {
    if (id < n_vocab) continue;
    return bad_field(field,
                     fmt::format("'{}' has token id {}; the model's vocabulary is 0 to {}", field, id, n_vocab - 1));
  }
  return {};
}

std::optional<ApiError> check_sampling(const PreparedRequest& prepared) {
  const Status valid = validate(prepared.options.sampling, prepared.model->tokenizer.n_vocab());
  if (valid.ok()) return {};
  const std::string& message = valid.error().message;  // starts with the field's name
  const std::string field = message.substr(0, message.find_first_of(" ["));
  return bad_field(field == "dry_breakers" ? "dry_sequence_breakers" : field, message);
}

std::shared_ptr<const TokenSet> dry_breakers_of(const SamplingParams& sampling, const ServedModel& model) {
  const bool are_default = sampling.dry_breakers == SamplingParams().dry_breakers;
  if (sampling.dry_multiplier > 0 && are_default) return model.default_dry_breakers;
  return find_dry_breakers(sampling, model.tokenizer);
}

// Fills in everything else from `request` and `model`.
std::optional<ApiError> prepare_generation(PreparedRequest& out) {
  out.request.sampling.seed = out.request.seed.value_or(random_number() >> 11);  // 53 bits: exact as a JSON number
  out.model->tokenizer.encode(out.request.prediction, {.add_special = false, .parse_special = false}, out.prediction);
  out.options.sampling = out.request.sampling;
  out.options.stop = out.request.stop;
  out.options.stop_tokens = out.request.stop_tokens;
  out.options.max_tokens = out.request.max_tokens;
  out.options.min_tokens = out.request.min_tokens;
  out.options.n_top_logprobs = out.request.n_top_logprobs;
  out.options.n_prompt_logprobs = out.request.n_prompt_logprobs;
  out.options.prompt_only = out.request.prompt_only;
  out.options.ignore_eos = out.request.ignore_eos;
  std::optional<ApiError> error = check_sampling(out);
  const int n_vocab = out.model->limits.n_vocab;
  if (!error) error = check_token_ids("stop_token_ids", out.request.stop_tokens, n_vocab);
  if (!error) error = check_token_ids("allowed_token_ids", out.request.allowed_tokens, n_vocab);
  if (!error) out.options.allowed_tokens = token_set_of(out.request.allowed_tokens, n_vocab);
  if (!error) out.options.dry_breakers = dry_breakers_of(out.options.sampling, *out.model);
  if (!error) error = out.request.is_chat() ? prepare_chat(out) : prepare_completion(out);
  return error;
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

OrApiError<RenderedPrompt> render(const ServedModel& model, ChatRequest& request) {
  rename_developer(model, request.messages);
  json::value prefix;
  if (request.continue_final_message) {  // read_messages() and the dialect have checked it
    prefix = std::move(request.messages.back());
    request.messages.pop_back();
  }
  const ChatTemplate& chat = model.prompt.chat_template();
  if (!chat.supports_tools() && (!request.tools.is_null() || has_tool_messages(request.messages))) {
    add_generic_tools({.tools = request.tools, .format = *model.tool_format, .supports_system = chat.supports_system()},
                      request.messages);
  }
  ChatTemplateInputs inputs;
  inputs.messages = request.messages;
  inputs.tools = request.tools;
  inputs.kwargs = request.template_kwargs;
  model.thinking.set_variables({.is_on = request.thinking, .effort = request.reasoning_effort}, inputs.kwargs);
  inputs.add_generation_prompt = request.add_generation_prompt;
  Result<RenderedPrompt> rendered = render_adapted(model.prompt, std::move(inputs), request.notes);
  if (!rendered.ok()) {
    return bad_field("messages",
                     fmt::format("the model's chat template rejected this conversation: {}", rendered.error().message));
  }
  RenderedPrompt& prompt = rendered.value();
  if (request.thinking == false) close_open_reasoning(*model.tool_format, prompt);
  if (request.continue_final_message) append_assistant_prefix(model, prefix.get_object(), request, prompt);
  return std::move(prompt);
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
  std::optional<ApiError> error = prepare_generation(out);
  if (!error) error = check_prompt_lengths(out);
  if (error) return std::move(*error);
  return out;
}

OrApiError<PreparedRequest> prepare(ModelRef model, ChatRequest request) {
  PreparedRequest out;
  out.model = std::move(model);
  out.request = std::move(request);
  if (std::optional<ApiError> error = prepare_generation(out)) return std::move(*error);
  return out;
}

}  // namespace zinc
