// Fields of vLLM's and llama.cpp's servers that OpenAI's API does not have, for chat completions and completions. Their
// meaning is that of the server they come from.
#pragma once

#include <span>

#include "chat/chat_request.h"
#include "server/fields.h"

namespace zinc {

extern const std::span<const FieldDoc> kExtensionFields;
// Reads them after the dialect's own fields; `n_predict` sets max_tokens if the dialect's field does not.
void read_extensions(const FieldReader& fields, ChatRequest& out);

}  // namespace zinc
