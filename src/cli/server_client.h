// Requests to a running `zinc serve`, for `zinc ps` and `zinc stop`.
#pragma once

#include <CLI/CLI.hpp>

#include <chrono>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace zinc {

struct ServerAddress {
  std::string url = "http://127.0.0.1:8080";
  std::string key;  // empty: none is sent
};

void declare_server_options(CLI::App& app, ServerAddress& server);  // --server and --api-key

// The body of the response. A body is sent with POST, no body with GET. Errors of the server keep its message.
Result<json::value> call_server(const ServerAddress& server, const std::string& path,
                                const json::object* body = nullptr,
                                std::chrono::seconds time_limit = std::chrono::seconds(600));

// The loaded models, as objects with "id", "figures" and others.
Result<std::vector<json::object>> loaded_models(const ServerAddress& server,
                                                std::chrono::seconds time_limit = std::chrono::seconds(60));

}  // namespace zinc
