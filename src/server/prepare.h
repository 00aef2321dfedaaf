// From the bytes of a request to engine input: JSON, fields, model, chat template, tokens. Pure and thread-safe, so
// that long requests can be prepared on the worker thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/api_dialect.h"
#include "server/served_model.h"
#include "text/message_parser.h"

namespace zinc {

struct PreparedRequest {
  ModelRef model = nullptr;
  ChatRequest request;
  std::vector<std::string> ignored_fields;    // unknown request fields
  json::object echoed;                        // request fields that the response repeats
  std::vector<std::vector<TokenId>> prompts;  // each generated request.n times
  std::vector<std::string> prompt_texts;      // if they are echoed
  std::vector<int> boundaries;                // Request::boundaries, for chat requests
  std::vector<TokenId> prediction;            // Request::prediction
  GenerationOptions options;
  ParserOptions parser;                                           // for chat requests
  std::function<void(const json::object& response)> on_response;  // ResponseMetadata::on_finished
  double load_s = 0;                                              // how long the request waited for its model to load
};

template <class T>
using OrApiError = std::variant<T, ApiError>;

RequestErrors request_errors(const ServerLimits& limits);  // unknown fields are ignored, or errors if they are strict
OrApiError<json::object> parse_body(std::string_view body);
// Of a route with a few short fields, which is read on the event loop: 413 for a long body.
OrApiError<json::object> parse_short_body(std::string_view body);
OrApiError<ModelRef> find_model(const ModelList& models, std::string_view name);
// Renders the conversation with the model's chat template. Adapts `request` to the template.
OrApiError<RenderedPrompt> render(const ServedModel& model, ChatRequest& request);

// Changes a parsed body before the dialect reads it.
using BodyFilter = std::function<void(json::object& body, RequestErrors& errors)>;
OrApiError<PreparedRequest> prepare(const ApiDialect& dialect, const ModelList& models, const ServerLimits& limits,
                                    std::string_view body, const BodyFilter& filter = {});
// The same for a request that did not come over HTTP; Engine::submit checks the length of its prompt.
OrApiError<PreparedRequest> prepare(ModelRef model, ChatRequest request);

}  // namespace zinc
