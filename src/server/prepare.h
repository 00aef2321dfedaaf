// From the bytes of a request to what the engine takes: JSON, fields, model, template, tokens. Pure and thread-safe, so
// that long ones can run beside the event loop.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/api_form.h"
#include "server/served_model.h"
#include "text/message_parser.h"

namespace zinc {

struct PreparedRequest {
  ModelRef model = nullptr;
  ChatRequest asked;
  json::object echoed;                        // what the form's answers repeat
  std::vector<std::vector<TokenId>> prompts;  // each answered asked.n times
  std::vector<std::string> prompt_texts;      // where they are echoed
  std::vector<int> boundaries;                // Request::boundaries, for a conversation
  AnswerOptions answer;
  ParserOptions parser;  // for a conversation
};

template <class T>
using OrApiError = std::variant<T, ApiError>;

OrApiError<json::object> parse_body(std::string_view body);
OrApiError<ModelRef> find_model(const ModelList& models, std::string_view name);
// The conversation as the template writes it. Changes `request` as the template needs it.
OrApiError<RenderedPrompt> render(const ServedModel& model, ChatRequest& request);

OrApiError<PreparedRequest> prepare(const ApiForm& form, const ModelList& models, const ServerLimits& limits,
                                    std::string_view body);
// The same for a request that came over no wire.
OrApiError<PreparedRequest> prepare(ModelRef model, ChatRequest asked);

}  // namespace zinc
