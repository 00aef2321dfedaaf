#include "server/embeddings.h"

#include <openssl/evp.h>

#include <cstring>

namespace zinc {
namespace {

constexpr FieldDoc kFields[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"input", "", "A string, an array of token ids, or an array of either."},
    {"encoding_format", "string", "float (default) or base64 (little-endian float32)."},
    {"dimensions", "integer", "Must be the model's embedding size."},
    {"pooling", "string", "How the token vectors are pooled: mean (default) or last."},
    {"user", "string", "No effect."},
};

std::string base64_of(const std::vector<float>& vector) {
  const size_t n_bytes = vector.size() * sizeof(float);  // all supported machines are little-endian
  std::string out(4 * ((n_bytes + 2) / 3) + 1, '\0');
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                reinterpret_cast<const unsigned char*>(vector.data()), static_cast<int>(n_bytes));
  out.resize(static_cast<size_t>(n));
  return out;
}

// One string, or one array of token ids.
std::optional<std::vector<TokenId>> read_input(const json::value& input, const Tokenizer& tokenizer) {
  std::vector<TokenId> out;
  if (input.is_string()) {
    tokenizer.encode(text_of(input.get_string()), {.add_special = true, .parse_special = false}, out);
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
  const json::value* input = fields.value("input");
  const bool is_list = input && input->is_array() && !input->get_array().empty() && !input->get_array()[0].is_number();
  const json::array inputs = is_list ? input->get_array() : json::array{input ? *input : json::value()};
  if (inputs.size() > static_cast<size_t>(limits.embedding_inputs)) {
    return fields.errors().add("input", "'input' has {} entries; expected at most {}", inputs.size(),
                               limits.embedding_inputs);
  }
  for (const json::value& entry : inputs) {
    auto tokens = read_input(entry, out.model->tokenizer);
    if (!tokens || tokens->empty()) {
      return fields.errors().add(
          "input", "'input[{}]' must be a non-empty string or a non-empty array of token ids of the model",
          out.inputs.size());
    }
    if (tokens->size() > static_cast<size_t>(out.model->limits.context)) {
      return fields.errors().add(
          {.message = fmt::format("'input[{}]' has {} tokens; the context of '{}' is limited to {}", out.inputs.size(),
                                  tokens->size(), out.model->name, out.model->limits.context),
           .param = "input",
           .code = "context_length_exceeded"});
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
  if (const auto dimensions = fields.integer("dimensions", 1, std::numeric_limits<int32_t>::max());
      dimensions && *dimensions != n) {
    fields.errors().add("dimensions", "'dimensions' is {}; the embeddings of this model have {}", *dimensions, n);
  }
}

class EmbeddingJob final : public OutputListener, public std::enable_shared_from_this<EmbeddingJob> {
 public:
  EmbeddingJob(EmbeddingRequest request, Client client, EventLoopNotifier& notifier, std::shared_ptr<Reply> reply)
      : request_(std::move(request)), client_(std::move(client)), notifier_(notifier), reply_(std::move(reply)) {}

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
    json::array data;
    int n_tokens = 0;
    for (const Part& part : parts_) {
      const std::vector<float>& vector = part.outcome->embedding;
      json::object entry{{"object", "embedding"}, {"index", data.size()}};
      entry["embedding"] =
          request_.as_base64 ? json::value(base64_of(vector)) : json::value(json::array(vector.begin(), vector.end()));
      data.push_back(std::move(entry));
      n_tokens += part.outcome->usage.n_prompt;
    }
    json::object body{{"object", "list"}, {"model", request_.model->name}};
    body["data"] = std::move(data);
    body["usage"] = {{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}};
    reply_->log["prompt_tokens"] = n_tokens;
    if (client_.key) client_.key->count_tokens(n_tokens, 0);
    reply_->send({.body = to_json(body)});
  }

  void reply_error(const ApiError& error) {
    cancel_remaining();
    reply_->send(error_response(error, ErrorFormat::openai));
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
  std::shared_ptr<Reply> reply_;
  std::vector<Part> parts_;  // submitted, in order
  int n_running_ = 0;
  bool is_done_ = false;
};

}  // namespace

const std::span<const FieldDoc> kEmbeddingFields = kFields;

OrApiError<EmbeddingRequest> prepare_embeddings(const ModelList& models, const ServerLimits& limits,
                                                std::string_view body) {
  OrApiError<json::object> parsed = parse_body(body);
  if (ApiError* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  RequestErrors errors;
  const FieldReader fields(std::get<json::object>(parsed), "", errors);
  fields.reject_unknown({kFields});
  const OrApiError<ModelRef> model = find_model(models, fields.text("model").value_or(""));
  if (errors.any()) return *errors.first();
  if (const ApiError* error = std::get_if<ApiError>(&model)) return *error;
  EmbeddingRequest out;
  out.model = std::get<ModelRef>(model);
  read_inputs(fields, limits, out);
  read_output_options(fields, out);
  if (errors.any()) return *errors.first();
  return out;
}

void start_embeddings(EmbeddingRequest request, const Client& client, EventLoopNotifier& notifier,
                      std::shared_ptr<Reply> reply) {
  std::make_shared<EmbeddingJob>(std::move(request), client, notifier, std::move(reply))->start();
}

}  // namespace zinc
