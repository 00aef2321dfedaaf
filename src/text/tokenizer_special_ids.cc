#include "text/tokenizer_special_ids.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>

namespace zinc {
namespace {

// Token texts that end a turn or a text in some model family.
constexpr std::string_view kEogTexts[] = {"<|eot_id|>",    "<|im_end|>",
                                          "<|end|>",       "<|return|>",
                                          "<|call|>",      "<|flush|>",
                                          "<|calls|>",     "<eos>",
                                          "<end_of_turn>", "</s>",
                                          "<|endoftext|>", "<EOT>",
                                          "<|eom_id|>",    "_<EOT>",
                                          "[EOT]",         "<|end_of_text|>",
                                          "[EOS]",         "<end_of_utterance>",
                                          "<turn|>",       "<|tool_response>",
                                          "[e~[",          "<｜end▁of▁sentence｜>"};

// Fill-in-the-middle tokens. The first three also end a generation: the model has started another file.
struct FimRole {
  std::string_view key;  // GGUF key of the token id
  bool is_eog;
  std::array<std::string_view, 8> texts;
};
constexpr FimRole kFimRoles[] = {
    {"tokenizer.ggml.fim_pad_token_id", true, {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    {"tokenizer.ggml.fim_rep_token_id", true, {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    {"tokenizer.ggml.fim_sep_token_id", true, {"<|file_sep|>"}},
    {"tokenizer.ggml.fim_pre_token_id",
     false,
     {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
      "<|prefix|>"}},
    {"tokenizer.ggml.fim_suf_token_id",
     false,
     {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
      "<|suffix|>"}},
    {"tokenizer.ggml.fim_mid_token_id",
     false,
     {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
      "<|middle|>"}},
};

// gpt-oss channel markers; its output cannot be parsed without them.
constexpr std::string_view kVisibleControlTexts[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

// Ids of the texts listed above.
class NamedTokens {
 public:
  explicit NamedTokens(const std::vector<std::string_view>& texts) {
    for (const std::string_view text : kEogTexts) ids_.emplace(text, -1);
    for (const std::string_view text : kVisibleControlTexts) ids_.emplace(text, -1);
    for (const FimRole& role : kFimRoles) {
      for (const std::string_view text : role.texts) ids_.emplace(text, -1);
    }
    size_t longest = 0;
    for (const auto& [text, id] : ids_) longest = std::max(longest, text.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      const std::string_view text = texts[i];
      if (text.empty() || text.size() > longest || (text.back() != '>' && text.back() != ']' && text.back() != '[')) {
        continue;
      }
      if (const auto found = ids_.find(text); found != ids_.end() && found->second < 0) {
        found->second = static_cast<TokenId>(i);
      }
    }
  }

  TokenId find(std::string_view text) const {  // -1: not in the vocabulary
    const auto found = ids_.find(text);
    return text.empty() || found == ids_.end() ? -1 : found->second;
  }

 private:
  std::unordered_map<std::string_view, TokenId> ids_;
};

class SpecialTokenReader {
 public:
  SpecialTokenReader(const GgufFile& file, const std::vector<std::string_view>& texts, std::vector<TokenType>& types)
      : file_(file), named_(texts), types_(types) {}

  SpecialTokenIds read(const SpecialTokenDefaults& defaults) {
    SpecialTokenIds special_ids;
    special_ids.bos = id("tokenizer.ggml.bos_token_id", defaults.bos);
    special_ids.eos = id("tokenizer.ggml.eos_token_id", defaults.eos);
    special_ids.unknown = id("tokenizer.ggml.unknown_token_id", defaults.unknown);
    const bool add_bos = file_.get_or("tokenizer.ggml.add_bos_token", defaults.add_bos) || defaults.force_bos;
    special_ids.add_bos = add_bos && special_ids.bos;
    special_ids.add_eos = file_.get_or("tokenizer.ggml.add_eos_token", false) && special_ids.eos;
    special_ids.fim = collect_fim_tokens();
    for (const std::string_view text : kEogTexts) {
      if (const TokenId token = named_.find(text); token >= 0) add_control_eog(token);
    }
    for (const std::string_view text : kVisibleControlTexts) set_type(named_.find(text), TokenType::visible_control);
    add_eog(special_ids.eos);
    add_eog(id("tokenizer.ggml.eot_token_id", std::nullopt));
    add_eog(id("tokenizer.ggml.eom_token_id", std::nullopt));
    apply_exceptions();
    std::sort(eog_ids_.begin(), eog_ids_.end());
    special_ids.eog_ids = eog_ids_;
    return special_ids;
  }

 private:
  // The id under `key`, or `fallback` if the key is absent; nullopt if outside the vocabulary.
  std::optional<TokenId> id(std::string_view key, std::optional<TokenId> fallback) const {
    const int64_t value = file_.get_or(key, fallback ? int64_t{*fallback} : int64_t{-1});
    if (value < 0 || value >= static_cast<int64_t>(types_.size())) return std::nullopt;
    return static_cast<TokenId>(value);
  }

  void set_type(TokenId token, TokenType type) {
    if (token >= 0) types_[static_cast<size_t>(token)] = type;
  }
  void add_eog(std::optional<TokenId> token) {
    if (token && std::find(eog_ids_.begin(), eog_ids_.end(), *token) == eog_ids_.end()) eog_ids_.push_back(*token);
  }
  void add_control_eog(TokenId token) {
    set_type(token, TokenType::control);
    add_eog(token);
  }
  void remove_eog(std::string_view text) { std::erase(eog_ids_, named_.find(text)); }
  bool is_eog_text(std::string_view text) const {
    return std::find(eog_ids_.begin(), eog_ids_.end(), named_.find(text)) != eog_ids_.end();
  }

  std::optional<FimTokens> collect_fim_tokens() {
    std::array<std::optional<TokenId>, std::size(kFimRoles)> found;
    for (size_t i = 0; i < std::size(kFimRoles); ++i) {
      const FimRole& role = kFimRoles[i];
      found[i] = id(role.key, std::nullopt);
      for (const std::string_view text : role.texts) {
        const TokenId named = named_.find(text);
        set_type(named, TokenType::control);
        if (!found[i] && named >= 0) found[i] = named;
      }
      if (role.is_eog) add_eog(found[i]);
    }
    const auto& [pad, repository, file_separator, prefix, suffix, middle] = found;
    if (!prefix || !suffix || !middle) return std::nullopt;
    return FimTokens{.prefix = *prefix,
                     .suffix = *suffix,
                     .middle = *middle,
                     .repository = repository,
                     .file_separator = file_separator};
  }

  // Families that use an end text with another meaning.
  void apply_exceptions() {
    const bool has_calls = is_eog_text("<|call|>") || is_eog_text("<|calls|>");
    if (has_calls && (is_eog_text("<|return|>") || is_eog_text("<|flush|>")) && is_eog_text("<|end|>")) {
      remove_eog("<|end|>");  // ends a message; another may follow
      set_type(named_.find("<|end|>"), TokenType::visible_control);
    }
    if (is_eog_text("<|tool_response>") && is_eog_text("</s>")) {
      remove_eog("</s>");  // Gemma 4: an HTML tag
      set_type(named_.find("</s>"), TokenType::normal);
    }
  }

  const GgufFile& file_;
  NamedTokens named_;
  std::vector<TokenType>& types_;
  std::vector<TokenId> eog_ids_;
};

}  // namespace

SpecialTokenIds read_special_tokens(const GgufFile& file, const SpecialTokenDefaults& defaults,
                                    const std::vector<std::string_view>& texts, std::vector<TokenType>& types) {
  return SpecialTokenReader(file, texts, types).read(defaults);
}

}  // namespace zinc
