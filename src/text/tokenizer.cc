#include "text/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "base/sanitize_for_terminal.h"
#include "text/tokenizer_model.h"
#include "text/tokenizer_special.h"
#include "text/tokenizer_special_ids.h"

namespace zinc {

struct Tokenizer::Tables {
  Vocabulary vocab;
  SpecialTokenIds special_ids;
  SpecialTokenFinder specials;
  std::unique_ptr<const TokenizerModel> model;

  void encode(std::string_view text, const TrustedRanges& trusted, std::vector<TokenId>& out) const {
    Workspace workspace(text.size());
    bool at_start = true;
    size_t at = 0, range_cursor = 0;
    while (const auto match = specials.find_next(text, at, trusted, range_cursor)) {
      encode_plain(text.substr(at, match->begin - at), at_start, workspace, out);
      out.push_back(match->id);
      at = match->end;
      at_start = true;
    }
    encode_plain(text.substr(at), at_start, workspace, out);
  }

  void encode_plain(std::string_view text, bool at_start, Workspace& workspace, std::vector<TokenId>& out) const {
    constexpr size_t kMaxPiece = size_t{1} << 30;  // offsets within a word are 32 bits
    for (; !text.empty(); at_start = false) {
      const std::string_view piece = text.substr(0, kMaxPiece);
      model->encode(piece, at_start, workspace, out);
      text.remove_prefix(piece.size());
    }
  }
};

namespace {

using Texts = std::vector<std::string_view>;

// Configuration for a value of tokenizer.ggml.model.
struct ModelRow {
  std::string_view model;
  TokenTextFormat text_format;
  std::string_view pre;  // empty: read from tokenizer.ggml.pre
  SpecialTokenDefaults special_ids;
  LoadTokenizerModel* load;
};
constexpr ModelRow kModels[] = {
    {"gpt2", TokenTextFormat::byte_level, "", {}, load_byte_bpe},
    // Some published Gemma 4 files disable BOS, but the model needs it.
    {"gemma4", TokenTextFormat::metaspace, "gemma4", {.force_bos = true}, load_char_bpe},
    // Does not use a pre-tokenizer.
    {"llama",
     TokenTextFormat::metaspace,
     "default",
     {.bos = 1, .eos = 2, .unknown = 0, .add_bos = true},
     load_sentencepiece},
};

Result<const ModelRow*> read_tokenizer_model(const GgufFile& file) {
  ZINC_TRY(model, file.get<std::string_view>("tokenizer.ggml.model"));
  // Some converters write gpt2 with the gemma4 pre-tokenizer.
  const bool is_gemma4 = model == "gpt2" && file.get_or("tokenizer.ggml.pre", std::string_view()) == "gemma4";
  for (const ModelRow& row : kModels) {
    if (row.model == (is_gemma4 ? "gemma4" : model)) return &row;
  }
  return fail(ErrorCode::unsupported,
              "{}: tokenizer.ggml.model is '{}', which is not supported; supported: gpt2, llama, gemma4", file.name(),
              sanitize_for_terminal(model));
}

Result<FoundPretokenizer> read_pretokenizer(const GgufFile& file, const ModelRow& model) {
  std::string_view name = model.pre;
  if (name.empty()) name = file.get_or("tokenizer.ggml.pre", std::string_view());
  const FoundPretokenizer found = find_pretokenizer(name.empty() ? "default" : name);
  if (found.rule) return found;
  return fail(ErrorCode::unsupported, "{}: tokenizer.ggml.pre is '{}', which is not supported; supported: {}",
              file.name(), sanitize_for_terminal(name), pretokenizer_names());
}

Result<std::vector<TokenType>> read_types(const GgufFile& file, const Texts& texts, TokenTextFormat text_format) {
  std::vector<TokenType> types(texts.size(), TokenType::normal);
  if (!file.find("tokenizer.ggml.token_type")) {
    for (size_t i = 0; i < texts.size(); ++i) {
      if (text_format == TokenTextFormat::metaspace && parse_byte_token(texts[i]) >= 0) types[i] = TokenType::byte;
    }
    return types;
  }
  ZINC_TRY(numbers, file.get<std::vector<int64_t>>("tokenizer.ggml.token_type"));
  if (numbers.size() < texts.size()) {
    return fail(ErrorCode::invalid_input,
                "{}: tokenizer.ggml.token_type has {} entries for {} tokens; the file is damaged or was converted "
                "wrongly",
                file.name(), numbers.size(), texts.size());
  }
  constexpr auto kLast = static_cast<int64_t>(TokenType::byte);
  for (size_t i = 0; i < texts.size(); ++i) {
    const bool known = numbers[i] >= 0 && numbers[i] <= kLast;
    types[i] = known ? static_cast<TokenType>(numbers[i]) : TokenType::undefined;
  }
  return types;
}

// Phi-3's special tokens have rstrip set, except these; GGUF files do not store it.
bool strips_right(std::string_view text) { return text != "<unk>" && text != "<s>" && text != "<|endoftext|>"; }

bool is_phi3(const GgufFile& file) {
  std::string name(file.get_or("general.name", std::string_view()));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

SpecialTokenFinder make_finder(const GgufFile& file, const Texts& texts, const std::vector<TokenType>& types) {
  SpecialTokenFinder finder;
  const bool phi3 = is_phi3(file);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (is_special(types[i])) finder.add(texts[i], static_cast<TokenId>(i), types[i], phi3 && strips_right(texts[i]));
  }
  return finder;
}

}  // namespace

Result<Tokenizer> Tokenizer::load(const GgufFile& file) {
  ZINC_TRY(model, read_tokenizer_model(file));
  ZINC_TRY(pretokenizer, read_pretokenizer(file, *model));
  ZINC_TRY(texts, file.get<Texts>("tokenizer.ggml.tokens"));
  if (texts.empty() || texts.size() > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    return fail(ErrorCode::invalid_input, "{}: tokenizer.ggml.tokens has {} entries", file.name(), texts.size());
  }
  ZINC_TRY(types, read_types(file, texts, model->text_format));
  SpecialTokenDefaults defaults = model->special_ids;
  defaults.add_bos = defaults.add_bos || pretokenizer.name->add_bos;
  const auto tables = std::make_shared<Tables>();
  tables->special_ids = read_special_tokens(file, defaults, texts, types);
  tables->specials = make_finder(file, texts, types);
  ZINC_TRY(vocab, Vocabulary::build(model->text_format, texts, types));
  tables->vocab = std::move(vocab);
  ZINC_TRY(loaded, model->load(file, pretokenizer, tables->vocab));
  tables->model = std::move(loaded);
  return Tokenizer(tables);
}

void Tokenizer::encode(std::string_view text, EncodeOptions special, std::vector<TokenId>& out) const {
  if (special.add_special && adds_bos()) out.push_back(*bos());
  TrustedRanges trusted{.ranges = {}, .visible_control = true};
  if (special.parse_special) trusted.ranges.push_back({0, text.size()});
  tables_->encode(text, trusted, out);
  if (special.add_special && adds_eos()) out.push_back(*eos());
}

void Tokenizer::encode(std::span<const TextSegment> segments, bool add_special, std::vector<TokenId>& out) const {
  std::string text;
  TrustedRanges trusted;
  for (const TextSegment& segment : segments) {
    const size_t begin = text.size();
    text += segment.text;
    if (!segment.parse_special) continue;
    const bool is_contiguous = !trusted.ranges.empty() && trusted.ranges.back().end == begin;
    if (is_contiguous) {
      trusted.ranges.back().end = text.size();
    } else {
      trusted.ranges.push_back({begin, text.size()});
    }
  }
  const size_t n_before = out.size();
  tables_->encode(text, trusted, out);
  if (!add_special) return;
  const bool has_bos = out.size() > n_before && out[n_before] == bos();
  if (adds_bos() && !has_bos) out.insert(out.begin() + static_cast<ptrdiff_t>(n_before), *bos());
  if (adds_eos()) out.push_back(*eos());
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  bool after_special = true;  // where encode() adds a space prefix
  for (const TokenId id : ids) {
    if (is_control(id)) {
      after_special = true;
      continue;
    }
    std::string_view piece = bytes(id);
    const bool special = tables_->vocab.is_token(id) && is_special(tables_->vocab.type(id));
    if (tables_->model->adds_space() && after_special && !special && piece.starts_with(' ')) piece.remove_prefix(1);
    text += piece;
    after_special = special;
  }
  return text;
}

int32_t Tokenizer::n_vocab() const { return tables_->vocab.n_tokens(); }

std::string_view Tokenizer::bytes(TokenId id) const {
  return tables_->vocab.is_token(id) ? tables_->vocab.bytes(id) : std::string_view();
}

bool Tokenizer::is_control(TokenId id) const {
  if (!tables_->vocab.is_token(id)) return false;
  const TokenType type = tables_->vocab.type(id);
  return type == TokenType::control || type == TokenType::unknown;
}

bool Tokenizer::is_eog(TokenId id) const {
  return std::binary_search(tables_->special_ids.eog_ids.begin(), tables_->special_ids.eog_ids.end(), id);
}

std::span<const TokenId> Tokenizer::eog_tokens() const { return tables_->special_ids.eog_ids; }
std::optional<TokenId> Tokenizer::bos() const { return tables_->special_ids.bos; }
std::optional<TokenId> Tokenizer::eos() const { return tables_->special_ids.eos; }
bool Tokenizer::adds_bos() const { return tables_->special_ids.add_bos; }
bool Tokenizer::adds_eos() const { return tables_->special_ids.add_eos; }
const std::optional<FimTokens>& Tokenizer::fim_tokens() const { return tables_->special_ids.fim; }

std::optional<TokenId> Tokenizer::find(std::string_view text) const {
  if (const auto special = tables_->specials.find(text)) return special;
  const int32_t symbol = tables_->vocab.find(text);
  return tables_->vocab.is_token(symbol) ? std::optional(symbol) : std::nullopt;
}

}  // namespace zinc
