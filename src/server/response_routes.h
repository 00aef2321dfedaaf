// /v1/responses with kept responses: resolves previous_response_id and item references before a request is prepared,
// and the routes that read, list and delete kept responses.
#pragma once

#include "server/http_message.h"
#include "server/prepare.h"
#include "server/response_store.h"

namespace zinc {

// prepare() for the responses dialect; the finished response is kept unless the request has `store` false.
// REQUIRES: the store outlives the generation.
OrApiError<PreparedRequest> prepare_response(ResponseStore& store, CacheNamespace owner, const ModelList& models,
                                             const ServerLimits& limits, std::string_view body);
// POST /v1/responses/input_tokens.
OrApiError<json::object> count_response_tokens(ResponseStore& store, CacheNamespace owner, const ModelList& models,
                                               const ServerLimits& limits, std::string_view body,
                                               RequestErrors& errors);

// GET and DELETE /v1/responses/{id}, GET /v1/responses/{id}/input_items.
HttpResponse show_response(ResponseStore& store, CacheNamespace owner, std::string_view path);
HttpResponse delete_response(ResponseStore& store, CacheNamespace owner, std::string_view path);
HttpResponse list_input_items(ResponseStore& store, CacheNamespace owner, std::string_view path);

}  // namespace zinc
