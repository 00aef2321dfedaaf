#include "convert/tokenizer_keys.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <unordered_map>

#include "base/mapped_file.h"
#include "base/sanitize_for_terminal.h"
#include "convert/read_file.h"
#include "convert/sentencepiece_model.h"

namespace zinc {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581
constexpr float kAddedScore = -1000, kPaddingScore = -10000;
constexpr int64_t kNoId = -1;
constexpr int64_t kMaxVocab = 1 << 24;  // far above any published model

// Vocabulary being built: one entry for each row of the token embedding.
struct VocabularyTable {
  std::vector<std::string> texts;
  std::vector<float> scores;
  std::vector<PieceType> types;

  explicit VocabularyTable(int64_t n_tokens) {
    for (int64_t id = 0; id < n_tokens; ++id) texts.push_back(fmt::format("[PAD{}]", id));
    scores.assign(texts.size(), kPaddingScore);
    types.assign(texts.size(), PieceType::unused);
  }
  void set(size_t id, std::string_view text, float score, PieceType type) {
    texts[id] = text;
    scores[id] = score;
    types[id] = type;
  }
  std::optional<int64_t> find(std::string_view text) const {  // a special token
    for (size_t id = 0; id < texts.size(); ++id) {
      if (types[id] != PieceType::unused && texts[id] == text) return static_cast<int64_t>(id);
    }
    return std::nullopt;
  }
};

const json::object& object_at(const json::object& object, std::string_view key) {
  static const json::object kEmpty;
  const json::value* const value = object.if_contains(key);
  return value && value->is_object() ? value->get_object() : kEmpty;
}

const json::array& array_at(const json::object& object, std::string_view key) {
  static const json::array kEmpty;
  const json::value* const value = object.if_contains(key);
  return value && value->is_array() ? value->get_array() : kEmpty;
}

std::string_view text_at(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  return value && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

std::optional<bool> flag_at(const json::object& object, std::string_view key) {
  const json::value* const value = object.if_contains(key);
  return value && value->is_bool() ? std::optional(value->get_bool()) : std::nullopt;
}

std::optional<int64_t> id_of(const json::value* value) {
  const int64_t* const id = value ? value->if_int64() : nullptr;
  return id && *id >= 0 ? std::optional(*id) : std::nullopt;
}

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

// Some added tokens are control tokens although they are not marked as special.
bool looks_special(std::string_view text) {
  constexpr std::array<std::string_view, 4> kNames = {"<pad>", "<mask>", "<2mass>", "[@BOS@]"};
  const auto is_between = [&](std::string_view begin, std::string_view end) {
    return text.size() >= begin.size() + end.size() && text.starts_with(begin) && text.ends_with(end);
  };
  return std::ranges::find(kNames, text) != kNames.end() || is_between("<|", "|>") || is_between("<｜", "｜>") ||
         is_between("<unused", ">");
}

bool is_byte_token(std::string_view text) { return text.size() == 6 && text.starts_with("<0x") && text.ends_with(">"); }

// Tokens that Gemma 4's chat format needs in the text of an answer.
bool is_visible_in_gemma4(std::string_view text) {
  constexpr std::array<std::string_view, 7> kTexts = {
      "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>"};
  return std::ranges::find(kTexts, text) != kTexts.end();
}

class TokenizerConverter {
 public:
  TokenizerConverter(const TokenizerSource& source, const CheckpointConfig& config, GgufHeader& header,
                     std::vector<std::string>& warnings)
      : source_(source),
        config_(config),
        header_(header),
        warnings_(warnings),
        table_(std::clamp<int64_t>(source.n_vocab, 0, kMaxVocab)) {}

  Status convert() {
    std::error_code ignored;
    const bool has_pieces = source_.kind != TokenizerKind::gemma4 && fs::exists(path("tokenizer.model"), ignored);
    if (!has_pieces && !fs::exists(path("tokenizer.json"), ignored)) {
      return fail(ErrorCode::not_found, "{}: has neither tokenizer.json nor tokenizer.model; download them too",
                  source_.folder.string());
    }
    ZINC_TRY(tokenizer_json, read_optional_json_object(path("tokenizer.json")));
    json_ = std::move(tokenizer_json);
    ZINC_TRY(settings, read_optional_json_object(path("tokenizer_config.json")));
    settings_ = std::move(settings);
    ZINC_TRY(vocabulary, has_pieces ? convert_pieces() : convert_json());
    header_.set("tokenizer.ggml.tokens", table_.texts);
    if (has_scores_) header_.set("tokenizer.ggml.scores", table_.scores);
    std::vector<int32_t> types;
    for (const PieceType type : table_.types) types.push_back(static_cast<int32_t>(type));
    header_.set("tokenizer.ggml.token_type", types);
    if (!merges_.empty()) header_.set("tokenizer.ggml.merges", merges_);
    ZINC_TRY(special, set_special_tokens());
    return set_chat_template();
  }

 private:
  fs::path path(std::string_view name) const { return source_.folder / name; }

  Status check_id(int64_t id, std::string_view text, std::string_view file) const {
    if (id >= 0 && std::cmp_less(id, table_.texts.size())) return ok_status();
    return fail(ErrorCode::invalid_input,
                "{}: token '{}' has the id {}, but the token embedding has only {} rows; the tokenizer is not this "
                "model's",
                path(file).string(), sanitize_for_terminal(text), id, table_.texts.size());
  }

  // ---- tokenizer.model ----

  Status convert_pieces() {
    ZINC_TRY(file, MappedFile::open(path("tokenizer.model")));
    ZINC_TRY(model, parse_sentencepiece_model(file.bytes(), path("tokenizer.model").string()));
    ZINC_TRY(checked,
             check_id(static_cast<int64_t>(model.pieces.size()) - 1, model.pieces.back().text, "tokenizer.model"));
    for (size_t id = 0; id < model.pieces.size(); ++id) {
      const SentencePieceModel::Piece& piece = model.pieces[id];
      table_.set(id, piece.text, piece.score, piece.type);
    }
    if (model.is_unigram) warn_of_unigram();
    ZINC_TRY(added, read_optional_json_object(path("added_tokens.json")));
    for (const auto& [text, id] : added) {
      ZINC_TRY(set, set_added(id_of(&id).value_or(kNoId), text, false, "added_tokens.json"));
    }
    ZINC_TRY(listed, set_added_tokens());
    set_metaspace_model("llama");
    if (!model.adds_space_prefix) header_.set("tokenizer.ggml.add_space_prefix", false);
    return ok_status();
  }

  void set_metaspace_model(std::string_view model) {
    header_.set("tokenizer.ggml.model", model);
    has_scores_ = true;
    if (source_.kind == TokenizerKind::gemma4) {
      header_.set("tokenizer.ggml.add_space_prefix", false);
      return;
    }
    header_.set("tokenizer.ggml.pre", "default");
    const std::optional<bool> prefix = flag_at(settings_, "add_prefix_space");
    if (source_.kind == TokenizerKind::no_space_prefix) {
      header_.set("tokenizer.ggml.add_space_prefix", false);
    } else if (prefix) {
      header_.set("tokenizer.ggml.add_space_prefix", *prefix);
    }
  }

  void warn_of_unigram() {
    warnings_.push_back(
        "the vocabulary is of the kind Unigram; GGUF tokenizers merge the best pair first, so some texts are split "
        "into "
        "other tokens than by the checkpoint's tokenizer");
  }

  // ---- added tokens ----

  // id: kNoId if the file has none.
  Status set_added(int64_t id, std::string_view text, bool is_special, std::string_view file) {
    if (id == kNoId) return fail(ErrorCode::invalid_input, "{}: an added token has no id", path(file).string());
    ZINC_TRY(checked, check_id(id, text, file));
    const bool is_control = is_special || looks_special(text);
    const bool is_visible = source_.kind == TokenizerKind::gemma4 && is_visible_in_gemma4(text);
    const auto i = static_cast<size_t>(id);
    if (table_.types[i] == PieceType::unknown || table_.types[i] == PieceType::byte) return ok_status();
    if (is_control && !is_visible) {
      table_.set(i, text, kAddedScore, PieceType::control);
    } else {
      table_.set(i, replace_all(std::string(text), kSpaceSymbol, " "), kAddedScore, PieceType::user_defined);
    }
    return ok_status();
  }

  // Of tokenizer.json and tokenizer_config.json; either may lack what the other has.
  Status set_added_tokens() {
    for (const json::value& token : array_at(json_, "added_tokens")) {
      if (!token.is_object()) continue;
      const json::object& fields = token.get_object();
      ZINC_TRY(set, set_added(id_of(fields.if_contains("id")).value_or(kNoId), text_at(fields, "content"),
                              flag_at(fields, "special").value_or(false), "tokenizer.json"));
    }
    for (const auto& [key, token] : object_at(settings_, "added_tokens_decoder")) {
      if (!token.is_object()) continue;
      const json::object& fields = token.get_object();
      const std::string digits(key);
      const bool is_number =
          !digits.empty() && digits.size() < 10 && digits.find_first_not_of("0123456789") == digits.npos;
      const int64_t id = is_number ? std::stoll(digits) : kNoId;
      ZINC_TRY(set, set_added(id, text_at(fields, "content"), flag_at(fields, "special").value_or(false),
                              "tokenizer_config.json"));
    }
    return ok_status();
  }

  // ---- tokenizer.json ----

  Status convert_json() {
    const json::object& model = object_at(json_, "model");
    const std::string_view kind = model.if_contains("type") ? text_at(model, "type") : "BPE";
    if (kind == "Unigram") return convert_unigram(model);
    if (kind != "BPE") {
      return fail(ErrorCode::unsupported,
                  "{}: a vocabulary of the kind '{}' is not supported; supported are BPE and "
                  "Unigram",
                  path("tokenizer.json").string(), sanitize_for_terminal(kind));
    }
    for (const auto& [text, id] : object_at(model, "vocab")) {
      const std::optional<int64_t> number = id_of(&id);
      ZINC_TRY(checked, check_id(number.value_or(-1), text, "tokenizer.json"));
      const bool is_byte = flag_at(model, "byte_fallback").value_or(false) && is_byte_token(text);
      table_.set(static_cast<size_t>(*number), text, kAddedScore, is_byte ? PieceType::byte : PieceType::normal);
    }
    ZINC_TRY(merges, read_merges(model));
    if (!flag_at(model, "byte_fallback").value_or(false)) return finish_byte_level(model);
    set_unknown(text_at(model, "unk_token"));
    ZINC_TRY(added, set_added_tokens());
    if (source_.kind == TokenizerKind::gemma4) {
      set_metaspace_model("gemma4");
      return ok_status();
    }
    score_by_merges();
    set_metaspace_model("llama");
    return ok_status();
  }

  void set_unknown(std::string_view text) {
    if (source_.kind == TokenizerKind::gemma4) return;
    if (const std::optional<int64_t> id = table_.find(text); id && !text.empty()) {
      table_.types[static_cast<size_t>(*id)] = PieceType::unknown;
    }
  }

  Status finish_byte_level(const json::object& model) {
    const json::value* const rules = json_.if_contains("pre_tokenizer");
    std::string name = source_.pretokenizer;
    if (name.empty() && rules) name = identify_pretokenizer(*rules, flag_at(model, "ignore_merges").value_or(false));
    if (name.empty()) {
      return fail(ErrorCode::unsupported,
                  "{}: the rules of its pre-tokenizer are not known; if another model with the same rules has a GGUF "
                  "file, pass that file's tokenizer.ggml.pre with --pre",
                  path("tokenizer.json").string());
    }
    header_.set("tokenizer.ggml.model", "gpt2");
    header_.set("tokenizer.ggml.pre", name);
    return set_added_tokens();
  }

  // Merges are "a b", or ["a", "b"], which may have spaces.
  Status read_merges(const json::object& model) {
    for (const json::value& merge : array_at(model, "merges")) {
      if (merge.is_string()) {
        merges_.emplace_back(merge.get_string());
        continue;
      }
      const bool is_pair = merge.is_array() && merge.get_array().size() == 2 && merge.get_array()[0].is_string() &&
                           merge.get_array()[1].is_string();
      if (!is_pair) return fail(ErrorCode::invalid_input, "{}: a merge is not a pair", path("tokenizer.json").string());
      constexpr std::string_view kByteLevelSpace = "Ġ";
      const auto part = [&](size_t i) {
        return replace_all(std::string(merge.get_array()[i].get_string()), " ", kByteLevelSpace);
      };
      merges_.push_back(part(0) + " " + part(1));
    }
    return ok_status();
  }

  // The order of the merges as scores: a SentencePiece BPE merges the pair of the best score first.
  void score_by_merges() {
    std::unordered_map<std::string_view, size_t> ids;
    for (size_t id = 0; id < table_.texts.size(); ++id) ids.emplace(table_.texts[id], id);
    std::vector<bool> has_score(table_.texts.size());
    for (size_t rank = 0; rank < merges_.size(); ++rank) {
      const std::string merged = replace_all(merges_[rank], " ", "");
      const auto found = ids.find(merged);
      if (found == ids.end() || has_score[found->second]) continue;
      has_score[found->second] = true;
      if (table_.types[found->second] == PieceType::normal) table_.scores[found->second] = -static_cast<float>(rank);
    }
    for (size_t id = 0; id < table_.texts.size(); ++id) {  // single characters: never the result of a merge
      if (!has_score[id] && table_.types[id] == PieceType::normal) {
        table_.scores[id] = -static_cast<float>(merges_.size() + id);
      }
    }
    merges_.clear();
  }

  Status convert_unigram(const json::object& model) {
    const json::array& pieces = array_at(model, "vocab");
    const std::optional<int64_t> unknown = id_of(model.if_contains("unk_id"));
    for (size_t id = 0; id < pieces.size(); ++id) {
      const json::array* const pair = pieces[id].if_array();
      if (!pair || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_number()) {
        return fail(ErrorCode::invalid_input, "{}: an entry of the vocabulary is not a text with a score",
                    path("tokenizer.json").string());
      }
      const std::string_view text = (*pair)[0].get_string();
      ZINC_TRY(checked, check_id(static_cast<int64_t>(id), text, "tokenizer.json"));
      PieceType type = is_byte_token(text) ? PieceType::byte : PieceType::normal;
      if (unknown && std::cmp_equal(*unknown, id)) type = PieceType::unknown;
      table_.set(id, text, (*pair)[1].to_number<float>(), type);
    }
    ZINC_TRY(added, set_added_tokens());
    warn_of_unigram();
    set_metaspace_model("llama");
    return ok_status();
  }

  // ---- special tokens ----

  struct SpecialName {
    std::string_view name, key;
  };

  // "<s>" or {"content": "<s>"} of tokenizer_config.json.
  std::string_view setting_text(std::string_view key) const {
    const std::string_view text = text_at(settings_, key);
    return text.empty() ? text_at(object_at(settings_, key), "content") : text;
  }

  bool is_token(int64_t id) const { return std::cmp_less(id, table_.texts.size()); }

  // By its text in tokenizer_config.json, else by its id in config.json, else in generation_config.json.
  std::optional<int64_t> special_id(std::string_view name, const json::object& generation) const {
    if (const std::string_view text = setting_text(fmt::format("{}_token", name)); !text.empty()) {
      if (const std::optional<int64_t> id = table_.find(text)) return id;
    }
    const std::string key = fmt::format("{}_token_id", name);
    for (const json::value* value : {config_.find(key), generation.if_contains(key)}) {
      if (value && value->is_array() && !value->get_array().empty()) value = &value->get_array()[0];
      if (const std::optional<int64_t> id = id_of(value); id && is_token(*id)) return id;
    }
    return std::nullopt;
  }

  Status set_special_tokens() {
    ZINC_TRY(generation, read_optional_json_object(path("generation_config.json")));
    constexpr std::array kNames = {SpecialName{"bos", "bos_token_id"},     SpecialName{"eos", "eos_token_id"},
                                   SpecialName{"unk", "unknown_token_id"}, SpecialName{"sep", "seperator_token_id"},
                                   SpecialName{"pad", "padding_token_id"}, SpecialName{"mask", "mask_token_id"}};
    std::optional<int64_t> eos;
    for (const SpecialName& special : kNames) {
      const std::optional<int64_t> id = special_id(special.name, generation);
      if (!id) continue;
      if (special.name == "eos") eos = id;
      header_.set(fmt::format("tokenizer.ggml.{}", special.key), static_cast<uint32_t>(*id));
    }
    set_end_of_turn(generation, eos);
    const auto [add_bos, add_eos] = added_by_template();
    if (const auto flag = flag_at(settings_, "add_bos_token"); flag || add_bos) {
      header_.set("tokenizer.ggml.add_bos_token", flag ? *flag : *add_bos);
    }
    if (const auto flag = flag_at(settings_, "add_eos_token"); flag || add_eos) {
      header_.set("tokenizer.ggml.add_eos_token", flag.value_or(add_eos));
    }
    if (source_.kind == TokenizerKind::gemma4) header_.set("tokenizer.ggml.add_bos_token", true);
    return ok_status();
  }

  // generation_config.json lists every token that ends an answer; the first that is not the end of a text ends a turn.
  void set_end_of_turn(const json::object& generation, std::optional<int64_t> eos) {
    for (const json::value& value : array_at(generation, "eos_token_id")) {
      const std::optional<int64_t> id = id_of(&value);
      if (!id || !is_token(*id) || id == eos) continue;
      header_.set("tokenizer.ggml.eot_token_id", static_cast<uint32_t>(*id));
      return;
    }
  }

  struct AddedByTemplate {
    std::optional<bool> bos;
    bool eos = false;
  };

  // Whether the post-processor adds a token in front and at the end.
  AddedByTemplate added_by_template() const {
    AddedByTemplate added;
    const json::object& processor = object_at(json_, "post_processor");
    const auto read = [&](const json::object& step) {
      if (text_at(step, "type") != "TemplateProcessing") return;
      const json::array& single = array_at(step, "single");
      const auto is_special = [&](size_t i) {
        return single[i].is_object() && single[i].get_object().contains("SpecialToken");
      };
      added.bos = !single.empty() && is_special(0);
      added.eos = single.size() > 1 && is_special(single.size() - 1);
    };
    read(processor);
    for (const json::value& step : array_at(processor, "processors")) {
      if (step.is_object()) read(step.get_object());
    }
    // A byte-level vocabulary without a template adds nothing, whatever is usual for its pre-tokenizer's name.
    if (!added.bos && !has_scores_) added.bos = false;
    return added;
  }

  // ---- chat template ----

  Status set_chat_template() {
    std::error_code ignored;
    if (fs::exists(path("chat_template.jinja"), ignored)) {
      ZINC_TRY(text, read_text_file(path("chat_template.jinja")));
      header_.set("tokenizer.chat_template", text);
      return ok_status();
    }
    const json::value* found = settings_.if_contains("chat_template");
    ZINC_TRY(other, read_optional_json_object(path("chat_template.json")));
    if (!found || found->is_null()) found = other.if_contains("chat_template");
    if (!found) return ok_status();
    if (found->is_string()) header_.set("tokenizer.chat_template", std::string_view(found->get_string()));
    if (found->is_array()) set_named_templates(found->get_array());
    return ok_status();
  }

  void set_named_templates(const json::array& templates) {
    std::vector<std::string> names;
    for (const json::value& entry : templates) {
      if (!entry.is_object()) continue;
      const std::string_view name = text_at(entry.get_object(), "name"), text = text_at(entry.get_object(), "template");
      if (name.empty() || text.empty()) continue;
      if (name == "default") {
        header_.set("tokenizer.chat_template", text);
        continue;
      }
      names.emplace_back(name);
      header_.set(fmt::format("tokenizer.chat_template.{}", name), text);
    }
    if (!names.empty()) header_.set("tokenizer.chat_templates", names);
  }

  const TokenizerSource& source_;
  const CheckpointConfig& config_;
  GgufHeader& header_;
  std::vector<std::string>& warnings_;
  VocabularyTable table_;
  bool has_scores_ = false;
  std::vector<std::string> merges_;
  json::object json_, settings_;
};

}  // namespace

Status set_tokenizer_keys(const TokenizerSource& source, const CheckpointConfig& config, GgufHeader& header,
                          std::vector<std::string>& warnings) {
  return TokenizerConverter(source, config, header, warnings).convert();
}

}  // namespace zinc
