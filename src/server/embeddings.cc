#include "server/embeddings.h"

#include <chrono>
#include <cmath>

#include "server/ollama_fields.h"

namespace zinc {
namespace {

constexpr size_t kMaxInlineNumbers = 2048;  // serialized in less than a millisecond

std::vector<float> truncated(std::vector<float> vector, int n_dimensions) {
  if (n_dimensions == 0 || static_cast<size_t>(n_dimensions) >= vector.size()) return vector;
  vector.resize(static_cast<size_t>(n_dimensions));
  double squares = 0;
  for (const float x : vector) squares += double{x} * x;
  for (float& x : vector) x = squares > 0 ? static_cast<float>(x / std::sqrt(squares)) : 0.0f;
  return vector;
}

// One string, or one array of token ids.
std::optional<std::vector<TokenId>> read_input(const json::value& input, const Tokenizer& tokenizer) {
  std::vector<TokenId> out;
  if (input.is_string()) {
    tokenizer.encode(text_of(input.get_string()), {.add_special = true, .parse_special = false}, out);
    const std::optional<TokenId> end = tokenizer.eos();
    if (out.empty() && end) out.push_back(*end);  // an empty document has a vector too
    return out;
  }
  if (!input.is_array()) return {};
  for (const json::value& id : input.get_array()) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= tokenizer.n_vocab()) return {};
    out.push_back(static_cast<TokenId>(id.get_int64()));
  }
  return out;
}

void read_inputs(const FieldReader& fields, const ServerLimits& limits, EmbeddingRequest& out) {
  const auto& names = out.dialect->input_names;
  const std::string_view name = fields.value(names[0]) || names[1].empty() ? names[0] : names[1];
  const json::value* input = fields.value(name);
  const bool is_list = input && input->is_array() && !input->get_array().empty() && !input->get_array()[0].is_number();
  const json::array inputs = is_list ? input->get_array() : json::array{input ? *input : json::value()};
  if (inputs.size() > static_cast<size_t>(limits.embedding_inputs)) {
    return fields.errors().add(name, "'{}' has {} entries; expected at most {}", name, inputs.size(),
                               limits.embedding_inputs);
  }
  const size_t context = static_cast<size_t>(out.model->limits.context);
  const bool truncates = out.dialect->may_truncate && fields.boolean("truncate").value_or(true);
  for (const json::value& entry : inputs) {
    auto tokens = read_input(entry, out.model->tokenizer);
    if (!tokens || tokens->empty()) {
      return fields.errors().add(name, "'{}[{}]' must be a string or a non-empty array of token ids of the model", name,
                                 out.inputs.size());
    }
    if (tokens->size() > context && truncates) tokens->resize(context);
    if (tokens->size() > context) {
      return fields.errors().add(context_exceeded(tokens->size(), context, out.model->name, name));
    }
    out.inputs.push_back(std::move(*tokens));
  }
}

void read_output_options(const FieldReader& fields, EmbeddingRequest& out) {
  const std::string format = fields.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64") {
    fields.errors().add("encoding_format", "'encoding_format' is '{}'; expected float or base64", format.substr(0, 40));
  }
  out.as_base64 = format == "base64";
  const std::string pooling = fields.text("pooling").value_or("mean");
  if (pooling != "mean" && pooling != "last") {
    fields.errors().add("pooling", "'pooling' is '{}'; expected mean or last", pooling.substr(0, 40));
  }
  out.pooling = pooling == "last" ? Pooling::last : Pooling::mean;
  const int n = out.model->limits.embedding_dim;
  out.n_dimensions = static_cast<int>(fields.integer("dimensions", 1, n).value_or(0));
}

class EmbeddingJob final : public OutputListener, public std::enable_shared_from_this<EmbeddingJob> {
 public:
  EmbeddingJob(EmbeddingRequest request, Client client, EventLoopNotifier& notifier, WorkerQueue& worker_queue,
               std::shared_ptr<Reply> reply)
      : request_(std::move(request)),
        client_(std::move(client)),
        notifier_(notifier),
        worker_queue_(worker_queue),
        reply_(std::move(reply)) {}

  void start() {
    reply_->log["model"] = request_.model->name;
    reply_->log["inputs"] = request_.inputs.size();
    if (!submit_more()) return;
    reply_->on_disconnect([self = shared_from_this()] { self->cancel_remaining(); });
  }

 private:
  struct Part {
    std::shared_ptr<BufferingSink> sink;
    RequestId id;
    std::optional<Outcome> outcome;
  };

  void on_output() override {
    if (is_done_) return;
    n_running_ = 0;
    for (Part& part : parts_) {
      if (!part.outcome) part.outcome = part.sink->drain().outcome;
      if (part.outcome && part.outcome->error) return reply_error(api_error(*part.outcome->error));
      if (part.outcome && part.outcome->reason == StopReason::cancelled) {
        return reply_error(http_error(503, "the server stopped before the response was complete"));
      }
      if (!part.outcome) ++n_running_;
    }
    if (submit_more() && n_running_ == 0) finish();
  }

  // Submits at most as many inputs as the engine runs at once, so that a long list does not fill the queue of other
  // clients. False: the engine rejected one.
  bool submit_more() {
    while (parts_.size() < request_.inputs.size() && n_running_ < request_.model->limits.max_sequences) {
      auto sink = std::make_shared<BufferingSink>(notifier_, weak_from_this(), BufferingSink::Options{});
      Request request;
      request.prompt = std::move(request_.inputs[parts_.size()]);
      request.client = client_.name;
      request.cache_namespace = client_.cache_namespace;
      request.cache_share = client_.cache_share;
      request.embedding = request_.pooling;
      request.sink = sink;
      const Result<RequestId> id = request_.model->engine->submit(std::move(request));
      if (!id.ok()) return reply_error(api_error(id.error())), false;
      parts_.push_back({.sink = std::move(sink), .id = id.value(), .outcome = {}});
      ++n_running_;
    }
    return true;
  }

  void finish() {
    is_done_ = true;
    EmbeddingResult result{.model = *request_.model, .vectors = {}, .as_base64 = request_.as_base64};
    for (Part& part : parts_) {
      result.vectors.push_back(truncated(std::move(part.outcome->embedding), request_.n_dimensions));
      result.n_tokens += part.outcome->usage.n_prompt;
    }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    reply_->log["prompt_tokens"] = result.n_tokens;
    if (client_.key) client_.key->count_tokens(result.n_tokens, 0);
    send(std::move(result));
  }

  // Thousands of vectors are megabytes of JSON: the worker thread serializes them, so that streams do not wait.
  void send(EmbeddingResult result) {
    const size_t n_numbers = result.vectors.size() * result.vectors.front().size();
    if (n_numbers <= kMaxInlineNumbers) return reply_->send({.body = to_json(request_.dialect->make_body(result))});
    worker_queue_.add({.client = client_.name,
                       .reply = reply_,
                       .work = [self = shared_from_this(), result = std::move(result)]() -> std::function<void()> {
                         const auto body =
                             std::make_shared<std::string>(to_json(self->request_.dialect->make_body(result)));
                         return [self, body] { self->reply_->send({.body = std::move(*body)}); };
                       }});
  }

  void reply_error(const ApiError& error) {
    cancel_remaining();
    reply_->send(error_response(error, request_.dialect->error_format));
  }
  void cancel_remaining() {
    is_done_ = true;
    for (const Part& part : parts_) {
      if (!part.outcome) request_.model->engine->cancel(part.id);
    }
  }

  EmbeddingRequest request_;
  Client client_;
  EventLoopNotifier& notifier_;
  WorkerQueue& worker_queue_;
  std::shared_ptr<Reply> reply_;
  std::vector<Part> parts_;  // submitted, in order
  int n_running_ = 0;
  bool is_done_ = false;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

OrApiError<EmbeddingRequest> prepare_embeddings(const EmbeddingDialect& dialect, const ModelList& models,
                                                const ServerLimits& limits, std::string_view body) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  RequestErrors errors = request_errors(limits);
  const FieldReader fields(std::get<json::object>(parsed), "", errors);
  const bool is_ollama = dialect.error_format == ErrorFormat::ollama;
  fields.check_known(dialect.fields);
  const OrApiError<ModelRef> model =
      find_model(models, is_ollama ? read_ollama_model(fields) : fields.text("model").value_or(""));
  if (errors.any()) return *errors.first();
  if (const ApiError* error = std::get_if<ApiError>(&model)) return *error;
  EmbeddingRequest out;
  out.dialect = &dialect;
  out.model = std::get<ModelRef>(model);
  read_inputs(fields, limits, out);
  read_output_options(fields, out);
  if (errors.any()) return *errors.first();
  out.ignored_fields = errors.ignored_fields();
  return out;
}

void start_embeddings(EmbeddingRequest request, const Client& client, EventLoopNotifier& notifier,
                      WorkerQueue& worker_queue, std::shared_ptr<Reply> reply) {
  std::make_shared<EmbeddingJob>(std::move(request), client, notifier, worker_queue, std::move(reply))->start();
}

}  // namespace zinc
