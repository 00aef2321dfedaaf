// Every route of the server: checks who asks, reads the request, answers or starts what answers. Event-loop thread;
// reading long requests is done by the text worker. Models and loop must outlive it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/access.h"
#include "server/api_form.h"
#include "server/doorbell.h"
#include "server/limits.h"
#include "server/model_library.h"
#include "server/model_swap.h"
#include "server/reply.h"
#include "server/served_model.h"
#include "server/text_queue.h"

namespace zinc {

// What the API needs of the event loop it runs on.
struct LoopPort {
  std::function<void(std::function<void()>)> post;  // runs a task on the loop; any thread
  std::function<void(std::function<void()>)> work;  // runs a task beside it
  std::function<bool()> is_draining;
  std::function<size_t()> n_connections;
};

struct ApiOptions {
  AccessOptions access = {};
  ServerLimits limits = {};
  json::object build = {};          // version and commit, for /props
  ModelLibrary* library = nullptr;  // what models are managed with; nullptr: not at all
  bool swaps_models = false;        // a request that names a model of this machine which is not loaded has it loaded
};

class Api {
 public:
  Api(const ModelList& models, const ApiOptions& options, LoopPort loop);

  void handle(HttpRequest request, std::shared_ptr<Reply> reply);
  // The answer to a request that no body could make right: a page or a key that may not, a route that is not there.
  std::optional<HttpResponse> refuse_head(const HttpRequest& head) const;
  static HttpResponse refusal(int status, std::string_view message);  // of what is no request at all

 private:
  struct Route;
  static const Route kRoutes[];
  static std::string methods_of(std::string_view path);  // "OPTIONS, POST"
  std::optional<ApiError> find_fault(const HttpRequest& head) const;
  const Route* find_route(const HttpRequest& request, bool& is_other_method) const;

  // What a request asks, for as long as it is not answered.
  struct Question {
    Client client;
    std::string body;
    std::shared_ptr<Reply> reply;
    ErrorForm form;
    std::shared_ptr<const ModelList> models;  // those it may mean
    std::optional<std::string> missing_model = {};
  };
  Question question_of(HttpRequest request, std::shared_ptr<Reply> reply, ErrorForm form) const;
  // Runs `prepare` on models and body, beside the loop where that is long, then `use` on what came out, on the loop. A
  // model that is missing is brought first, where that is allowed.
  template <class Prepared, class Prepare, class Use>
  void prepare_then(Question question, Prepare prepare, Use use);
  void generate(const ApiForm& form, HttpRequest request, std::shared_ptr<Reply> reply);
  // A question that is answered from the body alone.
  void answer_with(HttpRequest request, std::shared_ptr<Reply> reply, ErrorForm form,
                   std::variant<json::object, ApiError> (*answer)(const ModelList&, std::string_view body));

  void embed(HttpRequest request, std::shared_ptr<Reply> reply);
  void list_models(std::shared_ptr<Reply> reply) const;
  void show_model(std::string name, std::shared_ptr<Reply> reply) const;
  void show_health(std::shared_ptr<Reply> reply) const;
  void show_ready(std::shared_ptr<Reply> reply) const;
  void show_props(std::shared_ptr<Reply> reply) const;
  void show_metrics(std::shared_ptr<Reply> reply) const;
  void show_openapi(std::shared_ptr<Reply> reply) const;
  // Every model that a request may name, in the form of /v1/models.
  void list_servable(std::function<void(const json::object&)> use) const;
  double uptime_s() const;

  const ModelList& models_;
  ServerLimits limits_;
  json::object build_;
  ModelLibrary* library_;
  const bool swaps_models_;
  Access access_;
  LoopPort loop_;
  Doorbell bell_;
  TextQueue text_queue_;
  ModelSwap swap_;
  uint64_t n_requests_ = 0;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const int64_t started_at_s_;
};

}  // namespace zinc
