// A data table: names of pre-tokenizers by their rules in tokenizer.json.
#include <array>

#include "convert/tokenizer_keys.h"

namespace zinc {
namespace {

// One line per step: a regular expression, or the name of a step that has none.
struct RulesOfName {
  std::string_view rules, name, name_with_ignore_merges;
};

constexpr std::string_view kGpt2Step = "ByteLevel";  // with GPT-2's own regular expression
constexpr std::string_view kDigitStep = "Digits";    // each a word

constexpr std::array kRules = {
    RulesOfName{
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "qwen2", ""},
    RulesOfName{
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "qwen35", ""},
    RulesOfName{
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "dbrx", "llama-bpe"},
    RulesOfName{
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "gpt-4o", "gpt-4o"},
    RulesOfName{
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "tekken", "tekken"},
    RulesOfName{"Digits\nByteLevel", "smollm", ""},
    RulesOfName{"ByteLevel", "gpt-2", ""},
};

bool is_true(const json::object& object, std::string_view key, bool fallback) {
  const json::value* const flag = object.if_contains(key);
  return flag && flag->is_bool() ? flag->get_bool() : fallback;
}

std::string_view text_of(const json::object& object, std::string_view key) {
  const json::value* const text = object.if_contains(key);
  return text && text->is_string() ? std::string_view(text->get_string()) : std::string_view();
}

// Appends the steps of `value`, one line each.
void append_steps(const json::value& value, std::string& steps) {
  if (!value.is_object()) return;
  const json::object& object = value.get_object();
  const std::string_view type = text_of(object, "type");
  const auto append = [&](std::string_view step) {
    if (!steps.empty()) steps += '\n';
    steps += step;
  };
  if (type == "Sequence") {
    const json::value* const parts = object.if_contains("pretokenizers");
    if (!parts || !parts->is_array()) return append("?");
    for (const json::value& part : parts->get_array()) append_steps(part, steps);
  } else if (type == "Split") {
    const json::value* const pattern = object.if_contains("pattern");
    const std::string_view regex =
        pattern && pattern->is_object() ? text_of(pattern->get_object(), "Regex") : std::string_view();
    // The matches are the words; "Removed" drops what is between them, which for these rules is nothing.
    const bool is_plain = text_of(object, "behavior") == (is_true(object, "invert", false) ? "Removed" : "Isolated");
    append(is_plain && !regex.empty() ? regex : "?");
  } else if (type == "ByteLevel") {
    if (is_true(object, "use_regex", true)) append(kGpt2Step);
  } else if (type == "Digits") {
    append(is_true(object, "individual_digits", false) ? kDigitStep : "?");
  } else {
    append("?");
  }
}

}  // namespace

std::string identify_pretokenizer(const json::value& pre_tokenizer, bool ignore_merges) {
  std::string steps;
  append_steps(pre_tokenizer, steps);
  for (const RulesOfName& row : kRules) {
    if (row.rules == steps) return std::string(ignore_merges ? row.name_with_ignore_merges : row.name);
  }
  return "";
}

}  // namespace zinc
