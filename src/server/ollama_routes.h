// Routes of Ollama's API without generation: the installed and the loaded models, downloads with progress, removal.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/fields.h"
#include "server/keep_alive.h"
#include "server/model_library.h"
#include "server/prepare.h"
#include "server/reply.h"

namespace zinc {

extern const std::span<const FieldDoc> kOllamaModelFields, kOllamaPullFields;

// The version of Ollama whose API this is; clients compare it.
inline constexpr std::string_view kOllamaVersion = "0.13.0";

// GET /api/tags: every model that a request may name. `models` is the body of GET /v1/models.
json::object ollama_tags(const json::object& models);
// GET /api/ps: the loaded models.
json::object ollama_ps(const ModelList& models, const json::object& listed, const KeepAlive& keep_alive);
// POST /api/show, from the entry of GET /v1/models and the model itself if it is loaded.
json::object ollama_show(const json::object& entry, const ServedModel* loaded);

// A request without input, which only loads or unloads the model.
struct OllamaLoadRequest {
  std::string model;
  std::optional<KeepAliveTime> keep_alive;
  std::vector<std::string> ignored_fields = {};
  bool unloads() const { return keep_alive && keep_alive->idle && keep_alive->idle->count() == 0; }
};
// nullopt: the messages or the prompt of the body are not empty, or the body is invalid.
std::optional<OllamaLoadRequest> read_ollama_load(const ApiDialect& dialect, const ServerLimits& limits,
                                                  std::string_view body);

// The model that a body with `model` (or `name`) and `stream` names.
struct OllamaModelRequest {
  std::string model;
  bool stream = true;
  std::vector<std::string> ignored_fields = {};
};
OrApiError<OllamaModelRequest> read_ollama_model_request(std::span<const FieldDoc> known, const ServerLimits& limits,
                                                         std::string_view body);

// POST /api/pull: a line of JSON per change of the download's state, until it ends. The download goes on if the client
// disconnects.
class OllamaPull : public std::enable_shared_from_this<OllamaPull> {
 public:
  struct Loop {
    std::function<void(std::function<void()>)> post;
    KeepAlive::RunAfter run_after;
  };
  OllamaPull(ModelLibrary& library, OllamaModelRequest request, std::shared_ptr<Reply> reply, Loop loop)
      : library_(library), request_(std::move(request)), reply_(std::move(reply)), loop_(std::move(loop)) {}
  void start();

 private:
  void poll(bool is_first);
  void on_status(const OrApiError<PullStatus>& response, bool is_first);
  void write(json::object line);
  void finish(const ApiError* error);

  ModelLibrary& library_;
  OllamaModelRequest request_;
  std::shared_ptr<Reply> reply_;
  Loop loop_;
  std::string last_line_;
  bool is_streaming_ = false;
};

}  // namespace zinc
