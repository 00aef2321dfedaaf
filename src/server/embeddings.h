// POST /v1/embeddings: one vector per input; each input is a separate engine request.
#pragma once

#include <memory>

#include "server/access_control.h"
#include "server/event_loop_notifier.h"
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
void start_embeddings(EmbeddingRequest request, const Client& client, EventLoopNotifier& notifier,
                      std::shared_ptr<Reply> reply);

}  // namespace zinc
