// From the bytes of a request to engine input: JSON, fields, model, then chat/engine_input.h. Pure and thread-safe, so
// that long requests can be prepared on the worker thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "chat/engine_input.h"
#include "server/api_dialect.h"
#include "server/served_model.h"

namespace zinc {

struct PreparedRequest {
  ModelRef model = nullptr;
  ChatRequest request;
  EngineInput input;                                              // each request is generated request.n times
  std::vector<std::string> ignored_fields;                        // unknown request fields
  json::object echoed;                                            // request fields that the response repeats
  std::function<void(const json::object& response)> on_response;  // ResponseMetadata::on_finished
  double load_s = 0;                                              // how long the request waited for its model to load
  std::string replica = {};                                       // ApiOptions::replica
};

RequestErrors request_errors(const ServerLimits& limits);  // unknown fields are ignored, or errors if they are strict
OrApiError<json::object> parse_body(std::string_view body);
// Of a route with a few short fields, which is read on the event loop: 413 for a long body.
OrApiError<json::object> parse_short_body(std::string_view body);
OrApiError<ModelRef> find_model(const ModelList& models, std::string_view name);
// Finds the model of a parsed request and renders its conversation.
OrApiError<RenderedPrompt> render_request(const ModelList& models, ChatRequest& request, ModelRef& model);

// Changes a parsed body before the dialect reads it.
using BodyFilter = std::function<void(json::object& body, RequestErrors& errors)>;
OrApiError<PreparedRequest> prepare(const ApiDialect& dialect, const ModelList& models, const ServerLimits& limits,
                                    std::string_view body, const BodyFilter& filter = {});

}  // namespace zinc
