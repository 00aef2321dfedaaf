// POST /v1/embeddings: one vector per input, each a request of its own in the engine.
#pragma once

#include <memory>

#include "server/access.h"
#include "server/doorbell.h"
#include "server/prepare.h"
#include "server/reply.h"

namespace zinc {

extern const std::span<const FieldDoc> kEmbeddingFields;

struct EmbeddingRequest {
  ModelRef model = nullptr;
  std::vector<std::vector<TokenId>> inputs;
  Pooling pooling = Pooling::mean;
  bool as_base64 = false;
};

OrApiError<EmbeddingRequest> prepare_embeddings(const ModelList& models, const ServerLimits& limits,
                                                std::string_view body);
void start_embeddings(EmbeddingRequest request, const Client& client, Doorbell& bell, std::shared_ptr<Reply> reply);

}  // namespace zinc
