// The routes of the server: access control, dispatch, request parsing, and the start of generations. Event-loop thread;
// long requests are parsed on the worker thread. Models and event loop must outlive it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/access_control.h"
#include "server/api_dialect.h"
#include "server/embeddings.h"
#include "server/event_loop_notifier.h"
#include "server/keep_alive.h"
#include "server/limits.h"
#include "server/model_library.h"
#include "server/model_routes.h"
#include "server/model_swap.h"
#include "server/ollama_routes.h"
#include "server/reply.h"
#include "server/response_store.h"
#include "server/served_model.h"
#include "server/worker_queue.h"

namespace zinc {

// The functions of the event loop that the API needs.
struct EventLoopPort {
  std::function<void(std::function<void()>)> post;  // runs a task on the loop; any thread
  std::function<void(std::function<void()>)> work;  // runs a task on the worker thread
  std::function<bool()> is_draining;
  std::function<size_t()> n_connections;
  // Runs a task on the loop after a delay. Optional: without it, models are not unloaded when idle.
  std::function<void(std::chrono::milliseconds, std::function<void()>)> run_after = {};
};

struct PreparedRequest;

struct ApiOptions {
  AccessOptions access = {};
  ServerLimits limits = {};
  ResponseStoreLimits kept_responses = {};
  std::string replica = {};         // name of this server among several, in the ids of its responses; "": none
  json::object build = {};          // version and commit, for /props
  ModelLibrary* library = nullptr;  // manages models; nullptr: models cannot be managed
  bool swaps_models = false;        // a request may name an installed model that is not loaded; it is loaded first
};

class Api {
 public:
  Api(const ModelList& models, const ApiOptions& options, EventLoopPort loop);

  void handle(HttpRequest request, std::shared_ptr<Reply> reply);
  // Around the loading of a model at the server's start: requests for it wait. `names`: its name, then its aliases.
  void begin_load(std::vector<std::string> names) { swap_.begin_load(std::move(names)); }
  void finish_load(const std::string& name, const std::variant<ModelRef, ApiError>& result) {
    swap_.finish_load(name, result);
  }
  void set_named_keys(const std::vector<ApiKeyOptions>& keys) { access_.set_named_keys(keys); }
  // The error response if the headers alone are enough to reject a request: access denied, or no such route.
  std::optional<HttpResponse> check_headers(const HttpRequest& head) const;
  // From now on /health and /ready report this error with status 503: the server is about to end.
  void set_failure(std::string why) { failure_ = std::move(why); }
  static json::object openapi();                                             // the document at /openapi.json
  static HttpResponse protocol_error(int status, std::string_view message);  // malformed HTTP, limits exceeded

 private:
  struct Route;
  static const Route kRoutes[], kCompatibleRoutes[];
  static std::span<const Route> compatible_routes();       // of Ollama, llama.cpp and vLLM
  static const std::vector<Route>& routes();               // all of them
  static std::string suggest_path(std::string_view path);  // the most similar route; "": none
  static std::string methods_of(std::string_view path);    // "OPTIONS, POST"
  std::optional<ApiError> check_request(const HttpRequest& head) const;
  // Unknown fields do not fail a request, but they are not ignored silently: a header and the log line name them.
  static void report_ignored_fields(const std::vector<std::string>& names, Reply& reply);
  // Counts the request against the limits of its key; an error if they are exceeded.
  std::optional<ApiError> admit(const HttpRequest& request, Reply& reply) const;
  const Route* find_route(const HttpRequest& request, bool& is_other_method) const;

  // A request that has not been answered yet.
  struct PendingRequest {
    Client client;
    std::string body;
    std::shared_ptr<Reply> reply;
    ErrorFormat error_format;
    std::shared_ptr<const ModelList> models;  // the models it may use
    std::optional<std::string> missing_model = {};
    double load_s = 0;  // how long it waited for its model to load
    std::chrono::steady_clock::time_point received = std::chrono::steady_clock::now();
  };
  PendingRequest pending_request(HttpRequest request, std::shared_ptr<Reply> reply, ErrorFormat format) const;
  // Runs `prepare` on models and body, on the worker thread if the body is long, then `use` on the result, on the event
  // loop. Loads the model first if it is missing and swapping is allowed.
  template <class Prepared, class Prepare, class Use>
  void prepare_async(PendingRequest request, Prepare prepare, Use use);
  // Calls `use` with the model of this name, loading it first if it is missing and swapping is allowed.
  void with_model(std::string name, HttpRequest request, std::shared_ptr<Reply> reply, ErrorFormat format,
                  std::function<void(const ModelRef& model, Reply& reply)> use);
  void generate(const ApiDialect& dialect, HttpRequest request, std::shared_ptr<Reply> reply);
  void start_generation(const ApiDialect& dialect, PreparedRequest prepared, const PendingRequest& pending);
  void generate_response(HttpRequest request, std::shared_ptr<Reply> reply);  // /v1/responses
  // For routes whose response depends on the models and the body only.
  using BodyResponder =
      std::function<std::variant<json::object, ApiError>(const ModelList&, std::string_view body, RequestErrors&)>;
  void respond_from_body(HttpRequest request, std::shared_ptr<Reply> reply, ErrorFormat format, BodyResponder respond);

  void embed(const EmbeddingDialect& dialect, HttpRequest request, std::shared_ptr<Reply> reply);
  void count_response_input(HttpRequest request, std::shared_ptr<Reply> reply);  // /v1/responses/input_tokens
  // Ollama's: a request without messages or prompt only loads or unloads the model.
  void generate_or_load(const ApiDialect& dialect, HttpRequest request, std::shared_ptr<Reply> reply);
  void load_model(const OllamaLoadRequest& load, const ApiDialect& dialect, HttpRequest request,
                  std::shared_ptr<Reply> reply);
  void show_ollama_tags(std::shared_ptr<Reply> reply) const;
  void show_ollama_ps(std::shared_ptr<Reply> reply) const;
  void show_ollama_version(std::shared_ptr<Reply> reply) const;
  // The model that a body names; nullopt: it is invalid, and the error was sent.
  std::optional<OllamaModelRequest> read_model_request(std::span<const FieldDoc> known, const HttpRequest& request,
                                                       Reply& reply) const;
  void show_ollama_model(HttpRequest request, std::shared_ptr<Reply> reply);
  void pull_for_ollama(HttpRequest request, std::shared_ptr<Reply> reply);
  void delete_for_ollama(HttpRequest request, std::shared_ptr<Reply> reply);
  // llama.cpp's and vLLM's.
  void show_slots(std::shared_ptr<Reply> reply) const;
  void show_load(std::shared_ptr<Reply> reply) const;
  void show_version(std::shared_ptr<Reply> reply) const;
  void show_nothing(std::shared_ptr<Reply> reply) const;
  void show_no_adapters(std::shared_ptr<Reply> reply) const;
  void list_models(std::shared_ptr<Reply> reply) const;
  void show_model(std::string name, std::shared_ptr<Reply> reply) const;
  void show_health(std::shared_ptr<Reply> reply) const;
  void show_ready(std::shared_ptr<Reply> reply) const;
  void show_props(std::shared_ptr<Reply> reply) const;
  void show_metrics(std::shared_ptr<Reply> reply) const;
  void show_openapi(std::shared_ptr<Reply> reply) const;
  void show_tokenizer_info(std::shared_ptr<Reply> reply) const;
  // Every model that a request may name, in the format of /v1/models.
  void list_available_models(std::function<void(const json::object&)> use) const;
  double uptime_s() const;
  bool is_loading() const { return swap_.is_loading() && models_.all().empty(); }

  const ModelList& models_;
  ServerLimits limits_;
  json::object build_;
  ModelLibrary* library_;
  const bool swaps_models_;
  const std::string replica_;
  ResponseStore responses_;
  AccessControl access_;
  EventLoopPort loop_;
  EventLoopNotifier notifier_;
  WorkerQueue worker_queue_;
  ModelSwap swap_;
  KeepAlive keep_alive_;
  std::string failure_;  // empty: none
  uint64_t n_requests_ = 0;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const int64_t started_at_s_;
};

}  // namespace zinc
