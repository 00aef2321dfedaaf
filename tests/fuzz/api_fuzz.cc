// Request bodies. First byte: the route; then the body. Invariants: an error is a 400 or 404 with a message, in valid
// JSON; an accepted request has a prompt within the context and valid sampling parameters.
#include <cstdint>
#include <string>

#include "base/check.h"
#include "server/embeddings.h"
#include "server/prepare.h"
#include "server/text_routes.h"
#include "tests/support/scripted_engine.h"

namespace zinc {
namespace {

void check_error(const ApiError& error) {
  ZINC_CHECK(error.status == 400 || error.status == 404);
  ZINC_CHECK(!error.message.empty());
  for (const ErrorFormat format : {ErrorFormat::openai, ErrorFormat::anthropic}) {
    ZINC_CHECK(parse_json(error_response(error, format).body).ok());
  }
}

void check_generation(const ApiDialect& dialect, const ModelList& models, std::string_view body) {
  const ServerLimits limits;
  const OrApiError<PreparedRequest> result = prepare(dialect, models, limits, body);
  if (const ApiError* error = std::get_if<ApiError>(&result)) return check_error(*error);
  const PreparedRequest& prepared = std::get<PreparedRequest>(result);
  const std::vector<Request>& requests = prepared.input.requests;
  ZINC_CHECK(!requests.empty());
  ZINC_CHECK(requests.size() * static_cast<size_t>(prepared.request.n) <= static_cast<size_t>(limits.choices));
  const Tokenizer& tokenizer = prepared.model->tokenizer;
  for (const Request& request : requests) {
    ZINC_CHECK(!request.prompt.empty() && request.prompt.size() < static_cast<size_t>(prepared.model->limits.context));
    for (const TokenId id : request.prompt) ZINC_CHECK(id >= 0 && id < tokenizer.n_vocab());
    ZINC_CHECK(validate(request.options.sampling, tokenizer.n_vocab()).ok());
    ZINC_CHECK(request.options.max_tokens >= 0);
  }
}

void check_response(const OrApiError<json::object>& result) {
  if (const ApiError* error = std::get_if<ApiError>(&result)) return check_error(*error);
  ZINC_CHECK(parse_json(to_json(std::get<json::object>(result))).ok());
}

}  // namespace
}  // namespace zinc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace zinc;
  static ScriptedModel scripted(ZINC_SOURCE_DIR);
  if (size < 1) return 0;
  const ModelList& models = scripted.models();
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  RequestErrors errors;
  switch (data[0] % 9) {
    case 0:
      check_generation(chat_dialect(), models, body);
      break;
    case 1:
      check_generation(completions_dialect(), models, body);
      break;
    case 2:
      check_generation(responses_dialect(), models, body);
      break;
    case 3:
      check_generation(messages_dialect(), models, body);
      break;
    case 4:
      check_response(count_tokens(models, body, errors));
      break;
    case 5:
      check_response(tokenize(models, body, errors));
      break;
    case 6:
      check_response(detokenize(models, body, errors));
      break;
    case 7:
      check_response(apply_template(models, body, errors));
      break;
    default: {
      const OrApiError<EmbeddingRequest> result = prepare_embeddings(kOpenAiEmbeddings, models, ServerLimits(), body);
      if (const ApiError* error = std::get_if<ApiError>(&result)) check_error(*error);
    }
  }
  return 0;
}
