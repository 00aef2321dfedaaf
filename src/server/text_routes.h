// Routes without generation: tokenize, detokenize, apply the chat template, count tokens. Pure; any thread. Ignored
// fields are left in `errors`.
#pragma once

#include <span>
#include <string_view>

#include "server/prepare.h"

namespace zinc {

extern const std::span<const FieldDoc> kTokenizeFields, kDetokenizeFields;

OrApiError<json::object> tokenize(const ModelList& models, std::string_view body, RequestErrors& errors);
OrApiError<json::object> detokenize(const ModelList& models, std::string_view body, RequestErrors& errors);
json::object tokenizer_info(const ServedModel& model);
OrApiError<json::object> apply_template(const ModelList& models, std::string_view body, RequestErrors& errors);
OrApiError<json::object> count_tokens(const ModelList& models, std::string_view body, RequestErrors& errors);

}  // namespace zinc
