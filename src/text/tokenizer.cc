#include "text/tokenizer.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "base/printable.h"
#include "text/tokenizer_kind.h"
#include "text/tokenizer_roles.h"
#include "text/tokenizer_special.h"

namespace zinc {

struct Tokenizer::Tables {
  Vocabulary vocab;
  TokenRoles roles;
  SpecialTokenFinder specials;
  std::unique_ptr<const TokenizerKind> kind;

  void encode(std::string_view text, const TrustedText& trust, std::vector<TokenId>& out) const {
    Workspace space(text.size());
    bool at_start = true;
    size_t at = 0, range = 0;
    while (const auto match = specials.next(text, at, trust, range)) {
      encode_plain(text.substr(at, match->begin - at), at_start, space, out);
      out.push_back(match->id);
      at = match->end;
      at_start = true;
    }
    encode_plain(text.substr(at), at_start, space, out);
  }

  void encode_plain(std::string_view text, bool at_start, Workspace& space, std::vector<TokenId>& out) const {
    constexpr size_t kMaxPiece = size_t{1} << 30;  // offsets in a word have 32 bits
    for (; !text.empty(); at_start = false) {
      const std::string_view piece = text.substr(0, kMaxPiece);
      kind->encode(piece, at_start, space, out);
      text.remove_prefix(piece.size());
    }
  }
};

namespace {

using Texts = std::vector<std::string_view>;

// What a value of tokenizer.ggml.model means.
struct KindRow {
  std::string_view model;
  Spelling spelling;
  std::string_view pre;  // empty: the file says it in tokenizer.ggml.pre
  RoleDefaults roles;
  LoadTokenizerKind* load;
};
constexpr KindRow kKinds[] = {
    {"gpt2", Spelling::byte_level, "", {}, load_byte_bpe},
    // Gemma 4 files were published that do not want begin of text; the model is of no use without it.
    {"gemma4", Spelling::spaced, "gemma4", {.force_bos = true}, load_char_bpe},
    // Has no words: the rule is never asked.
    {"llama", Spelling::spaced, "default", {.bos = 1, .eos = 2, .unknown = 0, .add_bos = true}, load_scored},
};

Result<const KindRow*> read_kind(const GgufFile& file) {
  ZINC_TRY(model, file.get<std::string_view>("tokenizer.ggml.model"));
  // Some converters say gpt2 and leave the rest to the rule.
  const bool is_gemma4 = model == "gpt2" && file.get_or("tokenizer.ggml.pre", std::string_view()) == "gemma4";
  for (const KindRow& row : kKinds) {
    if (row.model == (is_gemma4 ? "gemma4" : model)) return &row;
  }
  return fail(ErrorCode::unsupported,
              "{}: tokenizer.ggml.model is '{}', which is not supported; known are gpt2, llama and gemma4", file.name(),
              printable(model));
}

Result<FoundPretokenizer> read_pretokenizer(const GgufFile& file, const KindRow& kind) {
  std::string_view name = kind.pre;
  if (name.empty()) name = file.get_or("tokenizer.ggml.pre", std::string_view());
  const FoundPretokenizer found = find_pretokenizer(name.empty() ? "default" : name);
  if (found.rule) return found;
  return fail(ErrorCode::unsupported, "{}: tokenizer.ggml.pre is '{}', which is not supported; known are {}",
              file.name(), printable(name), pretokenizer_names());
}

Result<std::vector<TokenType>> read_types(const GgufFile& file, const Texts& texts, Spelling spelling) {
  std::vector<TokenType> types(texts.size(), TokenType::normal);
  if (!file.find("tokenizer.ggml.token_type")) {
    for (size_t i = 0; i < texts.size(); ++i) {
      if (spelling == Spelling::spaced && byte_of_text(texts[i]) >= 0) types[i] = TokenType::byte;
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

// Phi-3's special tokens swallow the white space after them, but for these; the file does not say so.
bool strips_after(std::string_view text) { return text != "<unk>" && text != "<s>" && text != "<|endoftext|>"; }

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
    if (is_special(types[i])) finder.add(texts[i], static_cast<TokenId>(i), types[i], phi3 && strips_after(texts[i]));
  }
  return finder;
}

}  // namespace

Result<Tokenizer> Tokenizer::load(const GgufFile& file) {
  ZINC_TRY(kind, read_kind(file));
  ZINC_TRY(pretokenizer, read_pretokenizer(file, *kind));
  ZINC_TRY(texts, file.get<Texts>("tokenizer.ggml.tokens"));
  if (texts.empty() || texts.size() > static_cast<size_t>(std::numeric_limits<TokenId>::max())) {
    return fail(ErrorCode::invalid_input, "{}: tokenizer.ggml.tokens has {} entries", file.name(), texts.size());
  }
  ZINC_TRY(types, read_types(file, texts, kind->spelling));
  RoleDefaults defaults = kind->roles;
  defaults.add_bos = defaults.add_bos || pretokenizer.name->add_bos;
  const auto tables = std::make_shared<Tables>();
  tables->roles = read_roles(file, defaults, texts, types);
  tables->specials = make_finder(file, texts, types);
  ZINC_TRY(vocab, Vocabulary::build(kind->spelling, texts, types));
  tables->vocab = std::move(vocab);
  ZINC_TRY(loaded, kind->load(file, pretokenizer, tables->vocab));
  tables->kind = std::move(loaded);
  return Tokenizer(tables);
}

void Tokenizer::encode(std::string_view text, SpecialTokens special, std::vector<TokenId>& out) const {
  if (special.add_special && adds_bos()) out.push_back(*bos());
  TrustedText trust{.trusted = {}, .open_control = true};
  if (special.parse_special) trust.trusted.push_back({0, text.size()});
  tables_->encode(text, trust, out);
  if (special.add_special && adds_eos()) out.push_back(*eos());
}

void Tokenizer::encode(std::span<const TextSegment> segments, bool add_special, std::vector<TokenId>& out) const {
  std::string text;
  TrustedText trust;
  for (const TextSegment& segment : segments) {
    const size_t begin = text.size();
    text += segment.text;
    if (!segment.parse_special) continue;
    const bool goes_on = !trust.trusted.empty() && trust.trusted.back().end == begin;
    if (goes_on) {
      trust.trusted.back().end = text.size();
    } else {
      trust.trusted.push_back({begin, text.size()});
    }
  }
  const size_t n_before = out.size();
  tables_->encode(text, trust, out);
  if (!add_special) return;
  const bool has_bos = out.size() > n_before && out[n_before] == bos();
  if (adds_bos() && !has_bos) out.insert(out.begin() + static_cast<ptrdiff_t>(n_before), *bos());
  if (adds_eos()) out.push_back(*eos());
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  bool after_special = true;  // where encode() puts a space
  for (const TokenId id : ids) {
    if (is_control(id)) {
      after_special = true;
      continue;
    }
    std::string_view piece = bytes(id);
    const bool special = tables_->vocab.is_token(id) && is_special(tables_->vocab.type(id));
    if (tables_->kind->adds_space() && after_special && !special && piece.starts_with(' ')) piece.remove_prefix(1);
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

bool Tokenizer::is_end(TokenId id) const {
  return std::binary_search(tables_->roles.ends.begin(), tables_->roles.ends.end(), id);
}

std::span<const TokenId> Tokenizer::end_tokens() const { return tables_->roles.ends; }
std::optional<TokenId> Tokenizer::bos() const { return tables_->roles.bos; }
std::optional<TokenId> Tokenizer::eos() const { return tables_->roles.eos; }
bool Tokenizer::adds_bos() const { return tables_->roles.add_bos; }
bool Tokenizer::adds_eos() const { return tables_->roles.add_eos; }

std::optional<TokenId> Tokenizer::find(std::string_view text) const {
  if (const auto special = tables_->specials.find(text)) return special;
  const int32_t symbol = tables_->vocab.find(text);
  return tables_->vocab.is_token(symbol) ? std::optional(symbol) : std::nullopt;
}

}  // namespace zinc
