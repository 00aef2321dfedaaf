// Which model a typed name means. Ids are compared without case, dots, dashes, underscores and colons, so that Ollama's
// "qwen3:8b" is "qwen3-8b"; the beginning of exactly one id is enough. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zinc {

// The ids that `typed` may mean: one if it is an id, an alias of the catalog, or the beginning of exactly one id;
// several if it is the beginning of several; else none.
std::vector<std::string> match_model_name(std::string_view typed, std::span<const std::string> ids);

// Whether a single word looks like the name of a model rather than a question: it begins with the name of a model
// family ("mistral", "llama3"), has a size ("falcon-7b"), or is nearly one of the ids.
bool resembles_model_name(std::string_view word, std::span<const std::string> ids);

}  // namespace zinc
