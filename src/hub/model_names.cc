#include "hub/model_names.h"

#include <algorithm>
#include <array>

#include "base/nearest_name.h"
#include "hub/catalog.h"

namespace zinc {
namespace {

constexpr size_t kMinPrefix = 4;  // characters; shorter words are not abbreviations

// Names of families, also of those without a model in the catalog. Names that are English words are left out.
constexpr std::array<std::string_view, 27> kFamilyNames = {
    "chatglm",  "codellama", "codestral", "deepseek",  "devstral", "gemma",   "glm",       "gpt",       "internlm",
    "kimi",     "llama",     "llava",     "magistral", "minicpm",  "minimax", "ministral", "mistral",   "mixtral",
    "nemotron", "olmo",      "openchat",  "phi",       "qwen",     "qwq",     "smollm",    "starcoder", "tinyllama"};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The name in lower case, without separators.
std::string plain(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '.' || c == '-' || c == '_' || c == ':') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
  }
  return out;
}

// A number followed by "b" or "m", between separators or at an end: "7b", "1.5B", "135m".
bool has_size(std::string_view word) {
  for (size_t i = 1; i < word.size(); ++i) {
    const char unit = static_cast<char>(word[i] | 0x20);
    const bool ends = i + 1 == word.size() || !(is_letter(word[i + 1]) || is_digit(word[i + 1]));
    if ((unit == 'b' || unit == 'm') && is_digit(word[i - 1]) && ends) return true;
  }
  return false;
}

bool begins_with_family(std::string_view word) {
  const std::string name = plain(word);
  return std::ranges::any_of(kFamilyNames, [&](std::string_view family) {
    return name.starts_with(family) && (name.size() == family.size() || is_digit(name[family.size()]) ||
                                        !is_letter(word[std::min(family.size(), word.size() - 1)]));
  });
}

}  // namespace

std::vector<std::string> match_model_name(std::string_view typed, std::span<const std::string> ids) {
  const std::string wanted = plain(typed);
  std::vector<std::string> begins;
  for (const std::string& id : ids) {
    const std::string known = plain(id);
    if (known == wanted) return {id};
    if (wanted.size() >= kMinPrefix && known.starts_with(wanted)) begins.push_back(id);
  }
  if (const std::string_view id = catalog_alias(typed); !id.empty()) return {std::string(id)};
  std::ranges::sort(begins);
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  return begins;
}

bool resembles_model_name(std::string_view word, std::span<const std::string> ids) {
  constexpr size_t kMaxName = 100, kMinTypo = 6, kMaxEdits = 2;
  constexpr std::string_view kSeparators = "._:/@+-";
  if (word.size() < 3 || word.size() > kMaxName || !is_letter(word.front())) return false;
  const bool is_name = std::ranges::all_of(
      word, [&](char c) { return is_letter(c) || is_digit(c) || kSeparators.find(c) != std::string_view::npos; });
  if (!is_name || !(is_letter(word.back()) || is_digit(word.back()))) return false;
  if (begins_with_family(word) || has_size(word) || match_model_name(word, ids).size() > 1) return true;
  return word.size() >= kMinTypo &&
         std::ranges::any_of(ids, [&](const std::string& id) { return edit_distance(word, id) <= kMaxEdits; });
}

}  // namespace zinc
