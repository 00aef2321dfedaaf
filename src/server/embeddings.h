// Embeddings in the formats of OpenAI, Ollama and llama.cpp: one vector per input; each input is a separate engine
// request.
#pragma once

#include <array>
#include <memory>

#include "server/access_control.h"
#include "server/event_loop_notifier.h"
#include "server/prepare.h"
#include "server/reply.h"
#include "server/worker_queue.h"

namespace zinc {

struct EmbeddingResult {
  const ServedModel& model;
  std::vector<std::vector<float>> vectors;  // one per input
  int n_tokens = 0;
  double seconds = 0;
  bool as_base64 = false;
};

struct EmbeddingDialect {
  ErrorFormat error_format = ErrorFormat::openai;
  std::array<std::string_view, 2> input_names;  // of the field with the texts; the first one given counts
  bool may_truncate = false;                    // texts longer than the context are cut, unless `truncate` is false
  json::value (*make_body)(const EmbeddingResult& result);
  std::vector<std::span<const FieldDoc>> fields;
};
extern const std::span<const FieldDoc> kEmbeddingFields, kOllamaEmbedFields, kOllamaEmbeddingsFields,
    kLlamaEmbeddingFields;
extern const EmbeddingDialect kOpenAiEmbeddings;  // POST /v1/embeddings
extern const EmbeddingDialect kOllamaEmbed;       // POST /api/embed
extern const EmbeddingDialect kOllamaEmbeddings;  // POST /api/embeddings
extern const EmbeddingDialect kLlamaEmbedding;    // POST /embedding

struct EmbeddingRequest {
  const EmbeddingDialect* dialect = &kOpenAiEmbeddings;
  ModelRef model = nullptr;
  std::vector<std::vector<TokenId>> inputs;
  Pooling pooling = Pooling::mean;
  int n_dimensions = 0;  // the first ones of each vector, normalized again; 0: all
  bool as_base64 = false;
  std::vector<std::string> ignored_fields = {};
};

OrApiError<EmbeddingRequest> prepare_embeddings(const EmbeddingDialect& dialect, const ModelList& models,
                                                const ServerLimits& limits, std::string_view body);
// `worker_queue` is where long responses are serialized.
void start_embeddings(EmbeddingRequest request, const Client& client, EventLoopNotifier& notifier,
                      WorkerQueue& worker_queue, std::shared_ptr<Reply> reply);

}  // namespace zinc
