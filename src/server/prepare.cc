#include "server/prepare.h"

#include <algorithm>

#include "constrain/gbnf.h"
#include "constrain/json_schema.h"
#include "server/random_id.h"

namespace zinc {
namespace {

// What a thought that is out of budget is ended with: the sentence Qwen3 was trained with for this purpose.
constexpr std::string_view kBudgetSentence =
    "Considering the limited time by the user, I have to give the solution based on the thinking directly now.\n";

// What clients that insist on a name send where nobody has chosen one; they mean the same as none at all.
constexpr std::string_view kPlaceholders[] = {"default", "local-model"};

ApiError unknown_model(const ModelList& models, std::string_view name) {
  if (models.all().empty()) {
    ApiError error = http_error(503, "no model is loaded now; one may be on its way");
    error.missing_model = name;
    return error;
  }
  if (name.empty()) {
    return bad_field("model", fmt::format("'model' names none of the models; this server has {}", models.names()));
  }
  ApiError error =
      no_such_model(fmt::format("there is no model '{}'; this server has {}", name.substr(0, 100), models.names()));
  error.missing_model = name;
  return error;
}

// OpenAI's newer name for system messages, which most templates do not know.
void rename_developer(const ServedModel& model, json::array& messages) {
  if (model.prompt.chat_template().source().find("developer") != std::string::npos) return;
  for (json::value& message : messages) {
    json::value& role = message.at("role");
    if (role.get_string() == "developer") role = "system";
  }
}

void append(RenderedPrompt& prompt, std::string_view text, bool from_input) {
  if (text.empty()) return;
  if (!prompt.segments.empty() && prompt.segments.back().from_input == from_input) {
    prompt.segments.back().text += text;
  } else {
    prompt.segments.push_back({.text = std::string(text), .from_input = from_input});
  }
}

// Templates that know no switch open the thought all the same: it is closed at once.
void close_thought(const ThinkingMarkers& markers, RenderedPrompt& prompt) {
  append(prompt, fmt::format("\n{}\n\n", markers.close), /*from_input=*/false);
}

std::string text_field(const json::object& message, std::string_view name) {
  const json::value* text = message.if_contains(name);
  return text && text->is_string() ? text_of(text->get_string()) : std::string();
}

// The beginning of an answer follows the generation prompt as it stands: no template trims or closes it.
void append_beginning(const ServedModel& model, const json::object& message, ChatRequest& request,
                      RenderedPrompt& prompt) {
  const ThinkingMarkers& markers = model.tool_format->thinking;
  const bool is_open = prompt_opens_reasoning(*model.tool_format, prompt.text());
  const std::string content = text_field(message, "content");
  std::string thought = text_field(message, "reasoning_content");
  if (markers.close.empty() || (!is_open && request.thinking == false)) thought.clear();
  if (!thought.empty() && !is_open) append(prompt, fmt::format("{}\n", markers.open), /*from_input=*/false);
  append(prompt, thought, /*from_input=*/true);
  request.thought_is_open = (is_open || !thought.empty()) && content.empty();
  if ((is_open || !thought.empty()) && !content.empty()) close_thought(markers, prompt);
  append(prompt, content, /*from_input=*/true);
}

// Turns end with end tokens, which only the template can write: after each of them a later prompt may go on
// differently.
std::vector<int> turn_ends(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt) {
  std::vector<int> out;
  for (size_t i = 0; i + 1 < prompt.size(); ++i) {
    if (tokenizer.is_end(prompt[i])) out.push_back(static_cast<int>(i) + 1);
  }
  return out;
}

ThinkingBudget thinking_budget(const ServedModel& model, int max_tokens, bool starts_open) {
  const ThinkingMarkers& markers = model.tool_format->thinking;
  if (markers.close.empty()) return {};
  ThinkingBudget out{.opens = std::string(markers.open),
                     .closes = std::string(markers.close),
                     .starts_open = starts_open,
                     .max_tokens = max_tokens,
                     .when_out = {}};
  if (max_tokens < 0) return out;
  model.tokenizer.encode(fmt::format("{}{}\n\n", kBudgetSentence, markers.close),
                         {.add_special = false, .parse_special = true}, out.when_out);
  return out;
}

// Marks of thoughts and calls that are control tokens have to be seen by the parser. Where none can come, control
// tokens stay silent.
bool needs_control_tokens(const ServedModel& model, const ChatRequest& request) {
  if (!request.tools.is_null()) return true;
  const std::string_view open = model.tool_format->thinking.open;
  std::vector<TokenId> tokens;
  model.tokenizer.encode(open, {.add_special = false, .parse_special = true}, tokens);
  return !tokens.empty() && model.tokenizer.is_control(tokens.front());
}

Result<std::shared_ptr<Constraint>> find_constraint(const ServedModel& model, const FormRequest& form) {
  switch (form.kind) {
    case FormRequest::Kind::json_schema:
      return model.constraints->get("schema " + to_json(form.schema), [&] { return json_schema_grammar(form.schema); });
    case FormRequest::Kind::grammar:
      return model.constraints->get("grammar " + form.grammar, [&] { return parse_gbnf(form.grammar); });
    case FormRequest::Kind::json_object:
      return model.constraints->get("object", json_object_grammar);
    case FormRequest::Kind::any:
      break;
  }
  return std::shared_ptr<Constraint>();
}

std::optional<ApiError> prepare_form(PreparedRequest& out) {
  FormRequest& form = out.asked.form;
  if (out.asked.continues_last && form.kind != FormRequest::Kind::any) {
    return unsupported_field(form.field,
                             fmt::format("'{}' and 'continue_final_message' do not go together", form.field));
  }
  const Result<std::shared_ptr<Constraint>> found = find_constraint(*out.model, form);
  if (!found.ok()) return bad_field(form.field, fmt::format("'{}': {}", form.field, found.error().message));
  out.answer.form.constraint = found.value();
  form.schema = nullptr;
  form.grammar = {};
  return {};
}

std::optional<ApiError> prepare_chat(PreparedRequest& out) {
  const ServedModel& model = *out.model;
  const Result<ToolSchemas> tools = out.asked.tools.is_null() ? ToolSchemas() : ToolSchemas::read(out.asked.tools);
  if (!tools.ok()) return bad_field("tools", tools.error().message);
  if (!out.asked.tools.is_null() && !model.prompt.chat_template().supports_tools()) {
    return unsupported_field("tools", fmt::format("the chat template of '{}' has no place for tools", model.name));
  }
  OrApiError<RenderedPrompt> rendered = render(model, out.asked);
  if (ApiError* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  const RenderedPrompt& prompt = std::get<RenderedPrompt>(rendered);
  const bool opens_thought = out.asked.thought_is_open || prompt_opens_reasoning(*model.tool_format, prompt.text());
  out.prompts.push_back(model.prompt.encode(prompt));
  out.boundaries = turn_ends(model.tokenizer, out.prompts.front());
  out.parser = {.tools = tools.value(),
                .thinking = out.asked.thinking.value_or(true),
                .reasoning_open = opens_thought,
                .whole_calls = !out.asked.streams_arguments};
  out.answer.thinking = thinking_budget(model, out.asked.thinking_budget, opens_thought);
  out.answer.show_control = needs_control_tokens(model, out.asked);
  const AnswerParts parts{.opens_thought = opens_thought,
                          .may_think = out.asked.thinking.value_or(true),
                          .may_call = !out.asked.tools.is_null()};
  if (Status placed = place_form(*model.tool_format, model.tokenizer, parts, out.answer.form); !placed.ok()) {
    return unsupported_field(out.asked.form.field, fmt::format("'{}' and 'tools' do not go together: {}",
                                                               out.asked.form.field, placed.error().message));
  }
  out.asked.messages = {};  // said by the tokens now; an answer may take long
  out.asked.tools = nullptr;
  out.asked.template_kwargs = {};
  return {};
}

std::optional<ApiError> prepare_raw(PreparedRequest& out) {
  const ChatRequest& asked = out.asked;
  const Tokenizer& tokenizer = out.model->tokenizer;
  for (const RawPrompt& prompt : asked.prompts) {
    std::vector<TokenId> tokens;
    if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
      tokens = *ids;
    } else {
      tokenizer.encode(std::get<std::string>(prompt),
                       {.add_special = asked.add_special, .parse_special = asked.parse_special}, tokens);
    }
    for (const TokenId id : tokens) {
      if (id < 0 || id >= tokenizer.n_vocab()) {
        return bad_field("prompt", fmt::format("'prompt' has token {}; expected 0 to {}, the model's vocabulary", id,
                                               tokenizer.n_vocab() - 1));
      }
    }
    if (tokens.empty()) return bad_field("prompt", "'prompt' is empty, and this model has no begin-of-text token");
    if (asked.echo) out.prompt_texts.push_back(tokenizer.decode(tokens));
    out.prompts.push_back(std::move(tokens));
  }
  return {};
}

// Refused here where it is certain, so that the answer is a plain 400 even for one prompt of several.
std::optional<ApiError> check_lengths(const PreparedRequest& prepared) {
  for (const std::vector<TokenId>& prompt : prepared.prompts) {
    const size_t context = static_cast<size_t>(prepared.model->limits.context);
    if (prompt.size() < context) continue;
    return ApiError{.message = fmt::format("the prompt has {} tokens, and the context of '{}' holds {}, of which the "
                                           "answer needs at least one; shorten the prompt",
                                           prompt.size(), prepared.model->name, context),
                    .param = prepared.asked.is_chat() ? "messages" : "prompt",
                    .code = "context_length_exceeded"};
  }
  return {};
}

std::optional<ApiError> check_sampling(const PreparedRequest& prepared) {
  const Status valid = validate(prepared.answer.sampling, prepared.model->tokenizer.n_vocab());
  if (valid.ok()) return {};
  const std::string& message = valid.error().message;  // begins with the field's name
  const std::string field = message.substr(0, message.find_first_of(" ["));
  return bad_field(field == "dry_breakers" ? "dry_sequence_breakers" : field, message);
}

std::shared_ptr<const TokenSet> dry_breakers_of(const SamplingParams& sampling, const ServedModel& model) {
  const bool are_default = sampling.dry_breakers == SamplingParams().dry_breakers;
  if (sampling.dry_multiplier > 0 && are_default) return model.default_dry_breakers;
  return find_dry_breakers(sampling, model.tokenizer);
}

// From `asked` and `model` to all the rest.
std::optional<ApiError> prepare_asked(PreparedRequest& out) {
  out.asked.sampling.seed = out.asked.seed.value_or(random_number() >> 11);  // exact in any language
  out.answer.sampling = out.asked.sampling;
  out.answer.stop = out.asked.stop;
  out.answer.max_tokens = out.asked.max_tokens;
  out.answer.n_top_logprobs = out.asked.n_top_logprobs;
  out.answer.ignore_eos = out.asked.ignore_eos;
  std::optional<ApiError> error = check_sampling(out);
  if (!error) out.answer.dry_breakers = dry_breakers_of(out.answer.sampling, *out.model);
  if (!error) error = prepare_form(out);
  if (!error) error = out.asked.is_chat() ? prepare_chat(out) : prepare_raw(out);
  return error ? error : check_lengths(out);
}

}  // namespace

OrApiError<json::object> parse_body(std::string_view body) {
  Result<json::value> parsed = parse_json(body);
  if (!parsed.ok()) return http_error(400, "the request body is no JSON: " + parsed.error().message);
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
  json::value beginning;
  if (request.continues_last) {  // read_messages() and the form have checked that it is there
    beginning = std::move(request.messages.back());
    request.messages.pop_back();
  }
  ChatRequestData data;
  data.messages = request.messages;
  data.tools = request.tools;
  data.kwargs = request.template_kwargs;
  for (const std::string_view name : {"enable_thinking", "thinking"}) {
    if (request.thinking) data.kwargs[name] = *request.thinking;
  }
  Result<RenderedPrompt> rendered = model.prompt.render(std::move(data));
  if (!rendered.ok()) {
    return bad_field("messages",
                     fmt::format("the model's chat template refuses this conversation: {}", rendered.error().message));
  }
  RenderedPrompt& prompt = rendered.value();
  if (request.thinking == false && prompt_opens_reasoning(*model.tool_format, prompt.text())) {
    close_thought(model.tool_format->thinking, prompt);
  }
  if (request.continues_last) append_beginning(model, beginning.get_object(), request, prompt);
  return std::move(prompt);
}

OrApiError<PreparedRequest> prepare(const ApiForm& form, const ModelList& models, const ServerLimits& limits,
                                    std::string_view body) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  const json::object& object = std::get<json::object>(parsed);
  PreparedRequest out;
  RequestErrors errors;
  form.read(object, limits, errors, out.asked);
  if (errors.any()) return *errors.first();
  const OrApiError<ModelRef> model = find_model(models, out.asked.model);
  if (const ApiError* error = std::get_if<ApiError>(&model)) return *error;
  out.model = std::get<ModelRef>(model);

  out.echoed = form.echo(out.asked, object);
  if (std::optional<ApiError> error = prepare_asked(out)) return std::move(*error);
  return out;
}

OrApiError<PreparedRequest> prepare(ModelRef model, ChatRequest asked) {
  PreparedRequest out;
  out.model = std::move(model);
  out.asked = std::move(asked);
  if (std::optional<ApiError> error = prepare_asked(out)) return std::move(*error);
  return out;
}

}  // namespace zinc
