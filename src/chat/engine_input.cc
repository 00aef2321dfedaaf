#include "chat/engine_input.h"

#include <algorithm>

#include "chat/render_messages.h"
#include "chat/structured_output.h"
#include "engine/thinking_budget.h"
#include "sample/rng.h"

namespace zinc {
namespace {

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
bool needs_control_tokens(const ChatModel& model, const ChatRequest& request) {
  if (!request.tools.is_null()) return true;
  const std::string_view open = model.tool_format->thinking.open;
  std::vector<TokenId> tokens;
  model.tokenizer.encode(open, {.add_special = false, .parse_special = true}, tokens);
  return !tokens.empty() && model.tokenizer.is_control(tokens.front());
}

// Keeps the end of a prompt that is longer than the request wants.
void truncate_prompt(const ChatRequest& request, const ChatModel& model, std::vector<TokenId>& prompt) {
  const int n_output = std::max(request.options.max_tokens, 1);
  int n_kept = request.max_prompt_tokens;
  if (n_kept == 0) return;
  if (n_kept == ChatRequest::kWholeContext) n_kept = std::max(model.limits.context - n_output, 1);
  const ptrdiff_t n_dropped = std::ssize(prompt) - n_kept;
  if (n_dropped > 0) prompt.erase(prompt.begin(), prompt.begin() + n_dropped);
}

std::optional<RequestError> read_conversation(const ChatModel& model, ChatRequest& request, EngineInput& out) {
  const Result<ToolSchemas> tools = request.tools.is_null() ? ToolSchemas() : ToolSchemas::read(request.tools);
  if (!tools.ok()) return RequestError{"tools", tools.error()};
  OrRequestError<RenderedPrompt> rendered = render(model, request);
  if (RequestError* error = std::get_if<RequestError>(&rendered)) return std::move(*error);
  const RenderedPrompt& prompt = std::get<RenderedPrompt>(rendered);
  const bool starts_in_reasoning =
      request.reasoning_is_open || prompt_opens_reasoning(*model.tool_format, prompt.text());
  Request& added = out.requests.emplace_back(Request{.prompt = model.prompt.encode(prompt)});
  truncate_prompt(request, model, added.prompt);
  added.boundaries = turn_boundaries(model.tokenizer, added.prompt);
  out.parser = {.tools = tools.value(),
                .thinking = request.thinking.value_or(true),
                .reasoning_open = starts_in_reasoning,
                .buffer_calls = !request.stream_tool_arguments};
  request.options.thinking = make_thinking_budget(*model.tool_format, model.tokenizer,
                                                  {.max_tokens = request.thinking_budget,
                                                   .starts_open = starts_in_reasoning,
                                                   .may_call_tools = !request.tools.is_null()});
  request.options.show_control = request.options.show_control || needs_control_tokens(model, request);
  // A model that is not known to think would choose between two unlikely tokens: the first of the constraint and a
  // thinking marker.
  const bool may_reason = request.thinking.value_or(model.thinking.kind != ThinkingSupport::Kind::none);
  const ReasoningPosition reasoning{.starts_open = starts_in_reasoning, .is_allowed = may_reason};
  if (auto error = constrain_chat(model, request, tools.value(), reasoning)) return error;
  request.messages = {};  // no longer needed; frees memory while generating
  request.tools = nullptr;
  request.template_kwargs = {};
  request.response_format.schema = nullptr;
  request.response_format.grammar = {};
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

OrRequestError<std::vector<TokenId>> read_infill(const ChatModel& model, const ChatRequest& request) {
  if (!model.tokenizer.fim_tokens()) {
    return refused_field("suffix", "'{}' has no tokens for fill-in-the-middle; use a code model such as Qwen2.5-Coder",
                         model.name);
  }
  const auto* prefix = std::get_if<std::string>(&request.prompts.front());
  if (request.prompts.size() != 1 || !prefix) {
    return invalid_field("suffix", "'suffix' requires that 'prompt' is one string");
  }
  return fim_prompt(model.tokenizer, request, *prefix);
}

OrRequestError<std::vector<TokenId>> read_prompt(const ChatModel& model, const ChatRequest& request,
                                                 const RawPrompt& prompt) {
  const Tokenizer& tokenizer = model.tokenizer;
  std::vector<TokenId> tokens;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) {
    tokens = *ids;
  } else {
    tokenizer.encode(std::get<std::string>(prompt),
                     {.add_special = request.add_special, .parse_special = request.parse_special}, tokens);
  }
  for (const TokenId id : tokens) {
    if (id >= 0 && id < tokenizer.n_vocab()) continue;
    return invalid_field("prompt", "'prompt' contains token id {}; the model's vocabulary is 0 to {}", id,
                         tokenizer.n_vocab() - 1);
  }
  if (tokens.empty()) return invalid_field("prompt", "the prompt is empty, and this model has no BOS token");
  truncate_prompt(request, model, tokens);
  return tokens;
}

std::optional<RequestError> read_completion(const ChatModel& model, ChatRequest& request, EngineInput& out) {
  for (const RawPrompt& prompt : request.prompts) {
    OrRequestError<std::vector<TokenId>> tokens =
        request.suffix ? read_infill(model, request) : read_prompt(model, request, prompt);
    if (RequestError* error = std::get_if<RequestError>(&tokens)) return std::move(*error);
    out.requests.push_back({.prompt = std::move(std::get<std::vector<TokenId>>(tokens))});
    if (request.echo && !request.suffix) {
      out.prompt_texts.push_back(model.tokenizer.decode(out.requests.back().prompt));
    }
  }
  return constrain_completion(model, request);
}

std::shared_ptr<const TokenSet> token_set_of(const std::vector<TokenId>& tokens, int n_vocab) {
  if (tokens.empty()) return nullptr;
  auto out = std::make_shared<TokenSet>(static_cast<size_t>(n_vocab));
  for (const TokenId id : tokens) out->insert(id);
  return out;
}

std::optional<RequestError> check_token_ids(std::string_view field, const std::vector<TokenId>& tokens, int n_vocab) {
  for (const TokenId id : tokens) {
    if (id < n_vocab) continue;
    return invalid_field(std::string(field), "'{}' has token id {}; the model's vocabulary is 0 to {}", field, id,
                         n_vocab - 1);
  }
  return {};
}

std::optional<RequestError> check_sampling(const SamplingParams& sampling, const Tokenizer& tokenizer) {
  const Status valid = validate(sampling, tokenizer.n_vocab());
  if (valid.ok()) return {};
  const std::string& message = valid.error().message;  // starts with the field's name
  const std::string field = message.substr(0, message.find_first_of(" ["));
  return RequestError{field == "dry_breakers" ? "dry_sequence_breakers" : field, valid.error()};
}

std::shared_ptr<const TokenSet> dry_breakers_of(const SamplingParams& sampling, const ChatModel& model) {
  const bool are_default = sampling.dry_breakers == SamplingParams().dry_breakers;
  if (sampling.dry_multiplier > 0 && are_default && model.default_dry_breakers) return model.default_dry_breakers;
  return find_dry_breakers(sampling, model.tokenizer);
}

}  // namespace

OrRequestError<EngineInput> engine_input(const ChatModel& model, ChatRequest& request) {
  GenerationOptions& options = request.options;
  options.sampling.seed = request.seed.value_or(random_seed() >> 11);  // 53 bits: exact as a JSON number
  const int n_vocab = model.limits.n_vocab;
  std::optional<RequestError> error = check_sampling(options.sampling, model.tokenizer);
  if (!error) error = check_token_ids("stop_token_ids", options.stop_tokens, n_vocab);
  if (!error) error = check_token_ids("allowed_token_ids", request.allowed_tokens, n_vocab);
  if (error) return std::move(*error);
  options.allowed_tokens = token_set_of(request.allowed_tokens, n_vocab);
  options.dry_breakers = dry_breakers_of(options.sampling, model);
  EngineInput out;
  error = request.is_chat() ? read_conversation(model, request, out) : read_completion(model, request, out);
  if (error) return std::move(*error);
  std::vector<TokenId> prediction;
  encode_text(model.tokenizer, request.prediction, prediction);
  prediction.resize(std::min(prediction.size(), static_cast<size_t>(model.limits.context)));  // no output is longer
  for (Request& prompt : out.requests) {
    prompt.options = options;
    prompt.speculation = request.speculation;
    prompt.prediction = prediction;
  }
  return out;
}

}  // namespace zinc
