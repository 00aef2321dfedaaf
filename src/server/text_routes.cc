#include "server/text_routes.h"

#include "base/utf8.h"

namespace zinc {
namespace {

constexpr FieldDoc kTokenizeDocs[] = {
    {"model", "string", "Which model. May be left out where the server has one only."},
    {"content", "string", "The text."},
    {"prompt", "string", "Another name of content."},
    {"add_special", "boolean", "Begin-of-text is put before it where the model asks for it. Default false."},
    {"add_special_tokens", "boolean", "Another name of add_special."},
    {"parse_special", "boolean", "Names of control tokens become those tokens. Default false."},
    {"with_pieces", "boolean", "Tokens come with their text. Default false."},
};
constexpr FieldDoc kDetokenizeDocs[] = {
    {"model", "string", "Which model. May be left out where the server has one only."},
    {"tokens", "array", "Token ids."},
};

// A body with its reader, and the model it names.
struct Question {
  json::object body;
  ModelRef model = nullptr;
};

OrApiError<Question> read_question(const ModelList& models, std::string_view body, std::span<const FieldDoc> known) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  Question out{.body = std::move(std::get<json::object>(parsed))};
  RequestErrors errors;
  const FieldReader fields(out.body, "", errors);
  fields.refuse_unknown({known});
  const OrApiError<ModelRef> model = find_model(models, fields.text("model").value_or(""));
  if (errors.any()) return *errors.first();
  if (const ApiError* error = std::get_if<ApiError>(&model)) return *error;
  out.model = std::get<ModelRef>(model);
  return out;
}

// A token's text, or its bytes where it is a part of a character.
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

// Renders a conversation that has been read; `model` and `prompt` are the result.
OrApiError<RenderedPrompt> render_asked(const ModelList& models, ChatRequest& asked, ModelRef& model) {
  const OrApiError<ModelRef> found = find_model(models, asked.model);
  if (const ApiError* error = std::get_if<ApiError>(&found)) return *error;
  model = std::get<ModelRef>(found);
  return render(*model, asked);
}

}  // namespace

const std::span<const FieldDoc> kTokenizeFields = kTokenizeDocs, kDetokenizeFields = kDetokenizeDocs;

OrApiError<json::object> tokenize(const ModelList& models, std::string_view body) {
  OrApiError<Question> read = read_question(models, body, kTokenizeDocs);
  if (ApiError* error = std::get_if<ApiError>(&read)) return std::move(*error);
  const Question& question = std::get<Question>(read);
  RequestErrors errors;
  const FieldReader fields(question.body, "", errors);
  const std::string text = fields.value("prompt") ? fields.required_text("prompt") : fields.required_text("content");
  const bool add_special = fields.boolean("add_special").value_or(fields.boolean("add_special_tokens").value_or(false));
  const bool parse_special = fields.boolean("parse_special").value_or(false);
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  if (errors.any()) return *errors.first();
  const Tokenizer& tokenizer = question.model->tokenizer;
  std::vector<TokenId> tokens;
  tokenizer.encode(text, {.add_special = add_special, .parse_special = parse_special}, tokens);
  json::array list;
  for (const TokenId id : tokens) {
    list.push_back(with_pieces ? json::value(token_piece(tokenizer, id)) : json::value(id));
  }
  json::object out;
  out["tokens"] = std::move(list);
  out["count"] = tokens.size();
  out["max_model_len"] = question.model->limits.context;
  return out;
}

OrApiError<json::object> detokenize(const ModelList& models, std::string_view body) {
  OrApiError<Question> read = read_question(models, body, kDetokenizeDocs);
  if (ApiError* error = std::get_if<ApiError>(&read)) return std::move(*error);
  const Question& question = std::get<Question>(read);
  RequestErrors errors;
  const json::array* ids = FieldReader(question.body, "", errors).array("tokens");
  if (errors.any()) return *errors.first();
  if (!ids) return bad_field("tokens", "'tokens' is missing; expected an array of token ids");
  const Tokenizer& tokenizer = question.model->tokenizer;
  std::vector<TokenId> tokens;
  for (const json::value& id : *ids) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= tokenizer.n_vocab()) {
      return bad_field("tokens", fmt::format("'tokens[{}]' is no token id; expected 0 to {}", tokens.size(),
                                             tokenizer.n_vocab() - 1));
    }
    tokens.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return json::object{{"content", tokenizer.decode(tokens)}};
}

OrApiError<json::object> apply_template(const ModelList& models, std::string_view body) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  RequestErrors errors;
  ChatRequest asked;
  chat_form().read(std::get<json::object>(parsed), ServerLimits(), errors, asked);
  if (errors.any()) return *errors.first();
  ModelRef model = nullptr;
  OrApiError<RenderedPrompt> rendered = render_asked(models, asked, model);
  if (ApiError* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  const RenderedPrompt& prompt = std::get<RenderedPrompt>(rendered);
  return json::object{{"prompt", prompt.text()}, {"count", model->prompt.encode(prompt).size()}};
}

OrApiError<json::object> count_tokens(const ModelList& models, std::string_view body) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  RequestErrors errors;
  ChatRequest asked;
  read_countable(std::get<json::object>(parsed), errors, asked);
  if (errors.any()) return *errors.first();
  ModelRef model = nullptr;
  OrApiError<RenderedPrompt> rendered = render_asked(models, asked, model);
  if (ApiError* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  return json::object{{"input_tokens", model->prompt.encode(std::get<RenderedPrompt>(rendered)).size()}};
}

}  // namespace zinc
