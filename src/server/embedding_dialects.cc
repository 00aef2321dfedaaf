// The response formats of embeddings.
#include <openssl/evp.h>

#include "server/embeddings.h"

namespace zinc {
namespace {

constexpr FieldDoc kOpenAiFields[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"input", "", "A string, an array of token ids, or an array of either."},
    {"encoding_format", "string", "float (default) or base64 (little-endian float32)."},
    {"dimensions", "integer",
     "Returns only this many leading dimensions, normalized again; meant for models trained for it (Matryoshka). "
     "Default: all."},
    {"pooling", "string", "How the token vectors are pooled: mean (default) or last."},
    {"user", "string", "No effect."},
};
constexpr FieldDoc kEmbedFields[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"name", "string", "Older name of model."},
    {"input", "", "A string or an array of strings."},
    {"truncate", "boolean", "Cuts a text that is longer than the context; false: an error. Default true."},
    {"dimensions", "integer",
     "Returns only this many leading dimensions, normalized again; meant for models trained for it (Matryoshka). "
     "Default: all."},
    {"options", "object", "No effect."},
    {"keep_alive", "", "No effect on embeddings."},
};
constexpr FieldDoc kOldEmbedFields[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"name", "string", "Older name of model."},
    {"prompt", "string", "The text."},
    {"options", "object", "No effect."},
    {"keep_alive", "", "No effect on embeddings."},
};
constexpr FieldDoc kLlamaFields[] = {
    {"model", "string", "The model. Optional if the server has exactly one."},
    {"content", "", "A string or an array of strings."},
    {"input", "", "Alias of content."},
    {"embd_normalize", "integer", "No effect: vectors have length 1."},
};

std::string base64_of(const std::vector<float>& vector) {
  const size_t n_bytes = vector.size() * sizeof(float);  // all supported machines are little-endian
  std::string out(4 * ((n_bytes + 2) / 3) + 1, '\0');
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                reinterpret_cast<const unsigned char*>(vector.data()), static_cast<int>(n_bytes));
  out.resize(static_cast<size_t>(n));
  return out;
}

json::array numbers_of(const std::vector<float>& vector) { return json::array(vector.begin(), vector.end()); }

json::value openai_body(const EmbeddingResult& result) {
  json::array data;
  for (const std::vector<float>& vector : result.vectors) {
    json::object entry{{"object", "embedding"}, {"index", data.size()}};
    entry["embedding"] = result.as_base64 ? json::value(base64_of(vector)) : json::value(numbers_of(vector));
    data.push_back(std::move(entry));
  }
  json::object body{{"object", "list"}, {"model", result.model.name}};
  body["data"] = std::move(data);
  body["usage"] = {{"prompt_tokens", result.n_tokens}, {"total_tokens", result.n_tokens}};
  return body;
}

json::value ollama_embed_body(const EmbeddingResult& result) {
  json::array embeddings;
  for (const std::vector<float>& vector : result.vectors) embeddings.push_back(numbers_of(vector));
  json::object body{{"model", result.model.name},
                    {"total_duration", static_cast<int64_t>(result.seconds * 1e9)},
                    {"load_duration", 0},
                    {"prompt_eval_count", result.n_tokens}};
  body["embeddings"] = std::move(embeddings);
  return body;
}

json::value ollama_embeddings_body(const EmbeddingResult& result) {
  json::object body;
  body["embedding"] = numbers_of(result.vectors.front());
  return body;
}

// A list of vectors per input: llama.cpp has one per token if they are not pooled.
json::value llama_body(const EmbeddingResult& result) {
  json::array out;
  for (const std::vector<float>& vector : result.vectors) {
    json::object entry{{"index", out.size()}};
    entry["embedding"] = json::array(1, numbers_of(vector));
    out.push_back(std::move(entry));
  }
  return out;
}

}  // namespace

const std::span<const FieldDoc> kEmbeddingFields = kOpenAiFields, kOllamaEmbedFields = kEmbedFields,
                                kOllamaEmbeddingsFields = kOldEmbedFields, kLlamaEmbeddingFields = kLlamaFields;

const EmbeddingDialect kOpenAiEmbeddings = {
    .input_names = {"input"}, .make_body = openai_body, .fields = {kOpenAiFields}};
const EmbeddingDialect kOllamaEmbed = {.error_format = ErrorFormat::ollama,
                                       .input_names = {"input"},
                                       .may_truncate = true,
                                       .make_body = ollama_embed_body,
                                       .fields = {kEmbedFields}};
const EmbeddingDialect kOllamaEmbeddings = {.error_format = ErrorFormat::ollama,
                                            .input_names = {"prompt"},
                                            .may_truncate = true,
                                            .make_body = ollama_embeddings_body,
                                            .fields = {kOldEmbedFields}};
const EmbeddingDialect kLlamaEmbedding = {
    .input_names = {"content", "input"}, .make_body = llama_body, .fields = {kLlamaFields, kOpenAiFields}};

}  // namespace zinc
