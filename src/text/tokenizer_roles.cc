#include "text/tokenizer_roles.h"

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>

namespace zinc {
namespace {

// Texts that end a turn or a text in some family, wherever they occur.
constexpr std::string_view kEndTexts[] = {"<|eot_id|>",    "<|im_end|>",
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

// Marks of code completion; a generation that writes one of the first three kinds has left its file.
struct FillRole {
  std::string_view key;  // of the token's id; empty: the role is known by text only
  bool is_end;
  std::array<std::string_view, 8> texts;
};
constexpr FillRole kFillRoles[] = {
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

// gpt-oss writes its channels with these; its output cannot be read without them.
constexpr std::string_view kOpenControlTexts[] = {"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"};

// The ids of the texts this file cares about; nothing else is looked up.
class NamedTokens {
 public:
  explicit NamedTokens(const std::vector<std::string_view>& texts) {
    for (const std::string_view text : kEndTexts) ids_.emplace(text, -1);
    for (const std::string_view text : kOpenControlTexts) ids_.emplace(text, -1);
    for (const FillRole& role : kFillRoles) {
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

  TokenId find(std::string_view text) const {  // -1: the vocabulary has none
    const auto found = ids_.find(text);
    return text.empty() || found == ids_.end() ? -1 : found->second;
  }

 private:
  std::unordered_map<std::string_view, TokenId> ids_;
};

class RoleReader {
 public:
  RoleReader(const GgufFile& file, const std::vector<std::string_view>& texts, std::vector<TokenType>& types)
      : file_(file), named_(texts), types_(types) {}

  TokenRoles read(const RoleDefaults& defaults) {
    TokenRoles roles;
    roles.bos = id("tokenizer.ggml.bos_token_id", defaults.bos);
    roles.eos = id("tokenizer.ggml.eos_token_id", defaults.eos);
    roles.unknown = id("tokenizer.ggml.unknown_token_id", defaults.unknown);
    const bool add_bos = file_.get_or("tokenizer.ggml.add_bos_token", defaults.add_bos) || defaults.force_bos;
    roles.add_bos = add_bos && roles.bos;
    roles.add_eos = file_.get_or("tokenizer.ggml.add_eos_token", false) && roles.eos;
    collect_fill_marks();
    for (const std::string_view text : kEndTexts) {
      if (const TokenId token = named_.find(text); token >= 0) add_control_end(token);
    }
    for (const std::string_view text : kOpenControlTexts) set_type(named_.find(text), TokenType::open_control);
    add_end(roles.eos);
    add_end(id("tokenizer.ggml.eot_token_id", std::nullopt));
    add_end(id("tokenizer.ggml.eom_token_id", std::nullopt));
    apply_exceptions();
    std::sort(ends_.begin(), ends_.end());
    roles.ends = ends_;
    return roles;
  }

 private:
  // The id under `key`; `fallback` if it is absent. Ids outside the vocabulary do not count.
  std::optional<TokenId> id(std::string_view key, std::optional<TokenId> fallback) const {
    const int64_t value = file_.get_or(key, fallback ? int64_t{*fallback} : int64_t{-1});
    if (value < 0 || value >= static_cast<int64_t>(types_.size())) return std::nullopt;
    return static_cast<TokenId>(value);
  }

  void set_type(TokenId token, TokenType type) {
    if (token >= 0) types_[static_cast<size_t>(token)] = type;
  }
  void add_end(std::optional<TokenId> token) {
    if (token && std::find(ends_.begin(), ends_.end(), *token) == ends_.end()) ends_.push_back(*token);
  }
  void add_control_end(TokenId token) {
    set_type(token, TokenType::control);
    add_end(token);
  }
  void remove_end(std::string_view text) { std::erase(ends_, named_.find(text)); }
  bool ends_at(std::string_view text) const {
    return std::find(ends_.begin(), ends_.end(), named_.find(text)) != ends_.end();
  }

  void collect_fill_marks() {
    for (const FillRole& role : kFillRoles) {
      std::optional<TokenId> token = id(role.key, std::nullopt);
      for (const std::string_view text : role.texts) {
        const TokenId named = named_.find(text);
        set_type(named, TokenType::control);
        if (!token && named >= 0) token = named;
      }
      if (role.is_end) add_end(token);
    }
  }

  // Where a family gives an end text another meaning.
  void apply_exceptions() {
    const bool has_calls = ends_at("<|call|>") || ends_at("<|calls|>");
    if (has_calls && (ends_at("<|return|>") || ends_at("<|flush|>")) && ends_at("<|end|>")) {
      remove_end("<|end|>");  // it ends a message, and another may follow
      set_type(named_.find("<|end|>"), TokenType::open_control);
    }
    if (ends_at("<|tool_response>") && ends_at("</s>")) {
      remove_end("</s>");  // Gemma 4: an HTML tag
      set_type(named_.find("</s>"), TokenType::normal);
    }
  }

  const GgufFile& file_;
  NamedTokens named_;
  std::vector<TokenType>& types_;
  std::vector<TokenId> ends_;
};

}  // namespace

TokenRoles read_roles(const GgufFile& file, const RoleDefaults& defaults, const std::vector<std::string_view>& texts,
                      std::vector<TokenType>& types) {
  return RoleReader(file, texts, types).read(defaults);
}

}  // namespace zinc
