#include "server/text_routes.h"

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr FieldDoc kTokenizeDocs[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"content", "string", "The text."},
    {"prompt", "string", "Alias of content."},
    {"add_special", "boolean", "Adds the BOS token if the model uses one. Default false."},
    {"add_special_tokens", "boolean", "Alias of add_special."},
    {"parse_special", "boolean", "Parses the names of control tokens as control tokens. Default false."},
    {"with_pieces", "boolean", "Returns each token with its text. Default false."},
    {"return_token_strs", "boolean", "Returns the texts of the tokens as token_strs, as in vLLM. Default false."},
    {"messages", "array", "Instead of a text: a conversation, rendered with the chat template, as in vLLM."},
    {"tools", "array", "With messages: as in /v1/chat/completions."},
    {"chat_template_kwargs", "object", "With messages: as in /v1/chat/completions."},
    {"continue_final_message", "boolean", "With messages: as in /v1/chat/completions."},
    {"add_generation_prompt", "boolean", "With messages: as in /v1/chat/completions."},
};
constexpr FieldDoc kDetokenizeDocs[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"tokens", "array", "Token ids."},
};

// A request body and the model it names.
struct TokenizerRequest {
  json::object body;
  ModelRef model = nullptr;
};

OrApiError<TokenizerRequest> read_request(const ModelList& models, std::string_view body,
                                          std::span<const FieldDoc> known, RequestErrors& errors) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  TokenizerRequest out{.body = std::move(std::get<json::object>(parsed))};
  const FieldReader fields(out.body, "", errors);
  fields.check_known({known});
  const OrApiError<ModelRef> model = find_model(models, fields.text("model").value_or(""));
  if (errors.any()) return *errors.first();
  if (const ApiError* error = std::get_if<ApiError>(&model)) return *error;
  out.model = std::get<ModelRef>(model);
  return out;
}

// A token's text, or its bytes if it is part of a character.
json::object token_piece(const Tokenizer& tokenizer, TokenId id) {
  const std::string_view bytes = tokenizer.bytes(id);
  json::object out{{"id", id}};
  if (is_valid_utf8(bytes)) {
    out["piece"] = bytes;
  } else {
    json::array list;
    for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
    out["piece"] = std::move(list);
  }
  return out;
}

}  // namespace

const std::span<const FieldDoc> kTokenizeFields = kTokenizeDocs, kDetokenizeFields = kDetokenizeDocs;

namespace {

// The tokens of a text.
std::vector<TokenId> text_tokens(const FieldReader& fields, const Tokenizer& tokenizer) {
  const std::string text = fields.value("prompt") ? fields.required_text("prompt") : fields.required_text("content");
  const bool add_special = fields.boolean("add_special").value_or(fields.boolean("add_special_tokens").value_or(false));
  const bool parse_special = fields.boolean("parse_special").value_or(false);
  std::vector<TokenId> out;
  tokenizer.encode(text, {.add_special = add_special, .parse_special = parse_special}, out);
  return out;
}

// The tokens of a conversation: a chat request without the fields of this route.
OrApiError<std::vector<TokenId>> conversation_tokens(const ModelList& models, json::object body) {
  for (const std::string_view name : {"add_special", "add_special_tokens", "parse_special", "with_pieces",
                                      "return_token_strs", "content", "prompt"}) {
    body.erase(name);
  }
  ChatRequest request;
  RequestErrors errors;
  chat_dialect().read(body, ServerLimits(), errors, request);
  if (errors.any()) return *errors.first();
  ModelRef model = nullptr;
  OrApiError<RenderedPrompt> rendered = render_request(models, request, model);
  if (ApiError* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  return model->prompt.encode(std::get<RenderedPrompt>(rendered));
}

}  // namespace

OrApiError<json::object> tokenize(const ModelList& models, std::string_view body, RequestErrors& errors) {
  OrApiError<TokenizerRequest> read = read_request(models, body, kTokenizeDocs, errors);
  if (ApiError* error = std::get_if<ApiError>(&read)) return std::move(*error);
  const TokenizerRequest& request = std::get<TokenizerRequest>(read);
  const Tokenizer& tokenizer = request.model->tokenizer;
  const FieldReader fields(request.body, "", errors);
  OrApiError<std::vector<TokenId>> tokens;
  if (fields.value("messages")) {
    tokens = conversation_tokens(models, request.body);
  } else {
    tokens = text_tokens(fields, tokenizer);
  }
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  const bool with_texts = fields.boolean("return_token_strs").value_or(false);
  if (errors.any()) return *errors.first();
  if (ApiError* error = std::get_if<ApiError>(&tokens)) return std::move(*error);
  json::array list, texts;
  for (const TokenId id : std::get<std::vector<TokenId>>(tokens)) {
    list.push_back(with_pieces ? json::value(token_piece(tokenizer, id)) : json::value(id));
    if (with_texts) texts.emplace_back(json::string(tokenizer.bytes(id)));
  }
  json::object out{{"count", list.size()}, {"max_model_len", request.model->limits.context}};
  out["tokens"] = std::move(list);
  if (with_texts) out["token_strs"] = std::move(texts);
  return out;
}

OrApiError<json::object> detokenize(const ModelList& models, std::string_view body, RequestErrors& errors) {
  OrApiError<TokenizerRequest> read = read_request(models, body, kDetokenizeDocs, errors);
  if (ApiError* error = std::get_if<ApiError>(&read)) return std::move(*error);
  const TokenizerRequest& request = std::get<TokenizerRequest>(read);
  const json::array* ids = FieldReader(request.body, "", errors).array("tokens");
  if (errors.any()) return *errors.first();
  if (!ids) return bad_field("tokens", "'tokens' is missing; expected an array of token ids");
  const Tokenizer& tokenizer = request.model->tokenizer;
  std::vector<TokenId> tokens;
  for (const json::value& id : *ids) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= tokenizer.n_vocab()) {
      return bad_field("tokens", fmt::format("'tokens[{}]' is not a token id; expected 0 to {}", tokens.size(),
                                             tokenizer.n_vocab() - 1));
    }
    tokens.push_back(static_cast<TokenId>(id.get_int64()));
  }
  const std::string text = tokenizer.decode(tokens);
  return json::object{{"content", text}, {"prompt", text}};  // llama.cpp's name and vLLM's
}

json::object tokenizer_info(const ServedModel& model) {
  const Tokenizer& tokenizer = model.tokenizer;
  const auto name_of = [&](std::optional<TokenId> id) {
    return id ? json::value(tokenizer.bytes(*id)) : json::value(nullptr);
  };
  return {{"tokenizer_class", "zinc"},
          {"bos_token", name_of(tokenizer.bos())},
          {"eos_token", name_of(tokenizer.eos())},
          {"pad_token", name_of(tokenizer.eos())},
          {"add_bos_token", tokenizer.adds_bos()},
          {"add_eos_token", tokenizer.adds_eos()},
          {"model_max_length", model.limits.context},
          {"chat_template", model.prompt.chat_template().source()}};
}

OrApiError<json::object> apply_template(const ModelList& models, std::string_view body, RequestErrors& errors) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  ChatRequest request;
  chat_dialect().read(std::get<json::object>(parsed), ServerLimits(), errors, request);
  if (errors.any()) return *errors.first();
  ModelRef model = nullptr;
  OrApiError<RenderedPrompt> rendered = render_request(models, request, model);
  if (ApiError* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  const RenderedPrompt& prompt = std::get<RenderedPrompt>(rendered);
  return json::object{{"prompt", prompt.text()}, {"count", model->prompt.encode(prompt).size()}};
}

OrApiError<json::object> count_tokens(const ModelList& models, std::string_view body, RequestErrors& errors) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  ChatRequest request;
  read_countable(std::get<json::object>(parsed), errors, request);
  if (errors.any()) return *errors.first();
  ModelRef model = nullptr;
  OrApiError<RenderedPrompt> rendered = render_request(models, request, model);
  if (ApiError* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  return json::object{{"input_tokens", model->prompt.encode(std::get<RenderedPrompt>(rendered)).size()}};
}

}  // namespace zinc
