// POST /v1/completions: a prompt is continued as it is, without a chat template.
#include <fmt/format.h>

#include "base/utf8.h"
#include "server/api_form.h"
#include "server/request_fields.h"

namespace zinc {
namespace {

constexpr int kDefaultMaxTokens = 16;  // OpenAI's

constexpr FieldDoc kFields[] = {
    {"model", "string", "Which model. May be left out where the server has one only."},
    {"prompt", "", "A text, an array of token ids, or an array of either."},
    {"max_tokens", "integer", "Most tokens of the answer. Default 16."},
    {"n", "integer", "Answers to each prompt. Default 1."},
    {"best_of", "integer", "Must equal n."},
    {"stop", "", "A text or several at which the answer ends; they are not part of it."},
    {"stream", "boolean", "Answer as server-sent events. Default false."},
    {"stream_options", "object", "include_usage: a last event with token counts. Default false."},
    {"logprobs", "integer", "Alternatives per token, 0 to 20. Default: no log-probabilities."},
    {"echo", "boolean", "The prompt's text comes before the answer. Default false."},
    {"parse_special", "boolean", "Names of control tokens in the prompt become those tokens. Default false."},
    {"add_special_tokens", "boolean",
     "Begin-of-text is put before the prompt where the model asks for it. Default true."},
    {"response_format", "object", "As in /v1/chat/completions."},
    {"user", "string", "No effect."},
};
constexpr RefusedField kRefused[] = {
    {"suffix", "there is no fill-in-the-middle"},
};

std::optional<std::vector<TokenId>> token_list(const json::array& array) {
  std::vector<TokenId> out;
  for (const json::value& element : array) {
    if (!element.is_int64() || element.get_int64() < 0 || element.get_int64() > std::numeric_limits<TokenId>::max()) {
      return std::nullopt;
    }
    out.push_back(static_cast<TokenId>(element.get_int64()));
  }
  return out;
}

void read_prompts(const FieldReader& fields, ChatRequest& out) {
  const json::value* prompt = fields.value("prompt");
  const auto wrong = [&] {
    fields.errors().add("prompt",
                        "'prompt' is {}; expected a text, an array of token ids, or a non-empty array of either",
                        prompt ? json_type(*prompt) : "missing");
  };
  if (!prompt) return wrong();
  if (prompt->is_string()) return out.prompts.emplace_back(text_of(prompt->get_string())), void();
  if (!prompt->is_array() || prompt->get_array().empty()) return wrong();
  const json::array& array = prompt->get_array();
  if (array.front().is_number()) {
    auto tokens = token_list(array);
    if (!tokens) return wrong();
    return out.prompts.emplace_back(std::move(*tokens)), void();
  }
  for (const json::value& element : array) {
    auto tokens = element.is_array() ? token_list(element.get_array()) : std::nullopt;
    if (element.is_string()) {
      out.prompts.emplace_back(text_of(element.get_string()));
    } else if (tokens) {
      out.prompts.emplace_back(std::move(*tokens));
    } else {
      return wrong();
    }
  }
}

void read(const json::object& body, const ServerLimits& limits, RequestErrors& errors, ChatRequest& out) {
  const FieldReader fields(body, "", errors);
  fields.refuse_unknown({kFields, kFormFields, kSamplingFields}, kRefused);
  out.model = fields.text("model").value_or("");
  read_prompts(fields, out);
  out.max_tokens = read_token_limit(fields, "max_tokens").value_or(kDefaultMaxTokens);
  read_n(fields, limits, out);
  if (const auto best_of = fields.integer("best_of", 1, limits.choices); best_of && *best_of != out.n) {
    errors.add("best_of", "'best_of' is {}; expected n, which is {}: answers are not ranked here", *best_of, out.n);
  }
  if (out.prompts.size() * static_cast<size_t>(out.n) > static_cast<size_t>(limits.choices)) {
    errors.add("prompt", "{} prompts times n = {} make more than the {} answers a request may ask for",
               out.prompts.size(), out.n, limits.choices);
  }
  read_stop(fields, "stop", limits, out);
  out.stream = fields.boolean("stream").value_or(false);
  if (const json::object* options = fields.object("stream_options")) {
    out.include_usage = FieldReader(*options, "stream_options.", errors).boolean("include_usage").value_or(false);
  }
  out.n_top_logprobs = static_cast<int>(fields.integer("logprobs", 0, limits.top_logprobs).value_or(-1));
  out.echo = fields.boolean("echo").value_or(false);
  if (out.echo && out.n_top_logprobs >= 0) {
    errors.add(unsupported_field("echo", "'echo' together with 'logprobs' is not supported"));
  }
  out.parse_special = fields.boolean("parse_special").value_or(false);
  out.add_special = fields.boolean("add_special_tokens").value_or(true);
  read_response_format(fields, "response_format", out);
  read_form(fields, out);
  read_sampling(fields, out);
}

size_t n_characters(std::string_view text) {
  size_t n = 0;
  for (; !text.empty(); ++n) text.remove_prefix(static_cast<size_t>(next_utf8(text).n_bytes));
  return n;
}

json::object logprobs_json(std::span<const ShownToken> tokens, size_t offset) {
  json::array texts, logprobs, tops, offsets;
  for (const ShownToken& token : tokens) {
    texts.emplace_back(token.text);
    logprobs.push_back(token.logprob);
    json::object top;
    for (const ShownToken& other : token.top) top[other.text] = other.logprob;
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += n_characters(token.text);
  }
  json::object out;
  out["tokens"] = std::move(texts);
  out["token_logprobs"] = std::move(logprobs);
  out["top_logprobs"] = std::move(tops);
  out["text_offset"] = std::move(offsets);
  return out;
}

constexpr CompletionName kName = {"cmpl-", "text_completion", "text_completion"};

class CompletionStream final : public CompletionEvents {
 public:
  explicit CompletionStream(AnswerHead head) : CompletionEvents(kName, std::move(head)) {}

  void delta(int choice, const Delta& delta, std::span<const ShownToken> tokens, std::string& out) override {
    if (const auto* text = std::get_if<ContentDelta>(&delta)) piece(choice, text->text, tokens, "null", out);
  }
  void end_choice(int index, const Choice& choice, std::span<const ShownToken> tokens, std::string& out) override {
    piece(index, "", tokens, json_text(finish_reason(choice)), out);
  }

 private:
  void piece(int choice, std::string_view text, std::span<const ShownToken> tokens, std::string_view reason,
             std::string& out) {
    if (offsets_.size() <= static_cast<size_t>(choice)) offsets_.resize(static_cast<size_t>(choice) + 1);
    size_t& offset = offsets_[static_cast<size_t>(choice)];
    const bool has_logprobs = head_.with_logprobs && !tokens.empty();
    event(choice,
          fmt::format(R"("text":{},"logprobs":{},"finish_reason":{})", json_text(text),
                      has_logprobs ? to_json(logprobs_json(tokens, offset)) : "null", reason),
          "", out);
    for (const ShownToken& token : tokens) offset += n_characters(token.text);
  }

  std::vector<size_t> offsets_;
};

json::object whole(const AnswerHead& head, std::span<const Choice> choices, const UsageTotal& usage) {
  json::array list;
  for (const Choice& choice : choices) {
    json::object entry{{"index", list.size()}, {"text", choice.message.content}};
    entry["logprobs"] = head.with_logprobs ? json::value(logprobs_json(choice.tokens, 0)) : json::value(nullptr);
    entry["finish_reason"] = finish_reason(choice);
    list.push_back(std::move(entry));
  }
  return completion_object(kName, head, std::move(list), usage, choices.front());
}

}  // namespace

const ApiForm& completions_form() {
  static const ApiForm form = {.fields = {kFields, kFormFields, kSamplingFields},
                               .read = read,
                               .echo = [](const ChatRequest&, const json::object&) { return json::object(); },
                               .make_stream = [](AnswerHead head) -> std::unique_ptr<StreamWriter> {
                                 return std::make_unique<CompletionStream>(std::move(head));
                               },
                               .whole = whole};
  return form;
}

}  // namespace zinc
