// llama (SentencePiece): the text starts as characters; the adjacent pair whose token has the best score is merged
// first. Byte fallback for characters without a token.
#include <bit>
#include <cmath>

#include "text/tokenizer_char_pairs.h"
#include "text/tokenizer_model.h"

namespace zinc {
namespace {

// Maps scores to ranks, lowest rank for the best score: inverted order of the float's bits. NaN comes last.
uint32_t rank_of(double score) {
  const auto value = static_cast<float>(score) + 0.0f;  // no negative zero
  if (std::isnan(value)) return Merge::kNever - 1;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
  return std::min(~ascending, Merge::kNever - 1);
}

class SentencePiece final : public TokenizerModel {
 public:
  SentencePiece(const Vocabulary& vocab, std::vector<uint32_t> ranks, bool space_prefix)
      : vocab_(vocab), ranks_(std::move(ranks)), space_prefix_(space_prefix) {
    for (TokenId id = 0; id < vocab_.n_tokens(); ++id) {
      const TokenType type = vocab_.type(id);
      if (!is_special(type) || type == TokenType::user_defined) char_pairs_.add_neighbors(vocab_.bytes(id));
    }
  }

  void encode(std::string_view text, bool at_start, Workspace& workspace, std::vector<TokenId>& out) const override {
    if (space_prefix_ && at_start) {
      workspace.text.assign(1, ' ').append(text);
      text = workspace.text;
    }
    if (is_loosely_valid_utf8(text)) {
      encode_valid(text, workspace, out);
    } else {
      encode_invalid(text, workspace, out);
    }
  }

  bool adds_space() const override { return space_prefix_; }

 private:
  void encode_valid(std::string_view text, Workspace& workspace, std::vector<TokenId>& out) const {
    text = unescape_whitespace(text, workspace.text);
    while (!text.empty()) {
      const size_t n_bytes = char_pairs_.part_bytes(text);
      encode_part(text.substr(0, n_bytes), workspace, out);
      text.remove_prefix(n_bytes);
    }
  }

  // As in llama.cpp: spaces are escaped to U+2581 first, then a lead byte consumes as many bytes as its length says,
  // even bytes of U+2581. Invalid characters become byte tokens; the text between is encoded normally.
  void encode_invalid(std::string_view text, Workspace& workspace, std::vector<TokenId>& out) const {
    const std::string escaped = escape_whitespace(text);
    const std::string_view rest = escaped;
    size_t valid = 0, at = 0;  // [valid, at) are complete characters
    while (at < rest.size()) {
      const std::string_view character = CharPairFilter::char_at_front(rest.substr(at));
      if (!is_whole_char(character)) {
        encode_valid(rest.substr(valid, at - valid), workspace, out);
        append_bytes(character, out);
        valid = at + character.size();
      }
      at += character.size();
    }
    encode_valid(rest.substr(valid), workspace, out);
  }

  void encode_part(std::string_view part, Workspace& workspace, std::vector<TokenId>& out) const {
    const uint64_t hash = hash_bytes(part);
    if (workspace.cache.append(part, hash, out)) return;
    const size_t n_before = out.size();
    merge_part(part, workspace, out);
    workspace.cache.store(part, hash, out.data() + n_before, out.size() - n_before);
  }

  void merge_part(std::string_view part, Workspace& workspace, std::vector<TokenId>& out) const {
    workspace.symbols.clear();
    for (size_t at = 0; at < part.size();) {
      const size_t n_bytes = CharPairFilter::char_at_front(part.substr(at)).size();
      workspace.symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(n_bytes), Vocabulary::kNone});
      at += n_bytes;
    }
    merge_symbols(workspace, [this, part](const Symbol& left, const Symbol& right) -> Merge {
      const size_t n_bytes = size_t{left.n_bytes} + right.n_bytes;
      if (n_bytes > vocab_.max_bytes()) return {};
      const int32_t token = vocab_.find(part.substr(left.begin, n_bytes));
      return token == Vocabulary::kNone ? Merge{} : Merge{ranks_[static_cast<size_t>(token)], token};
    });
    for (const Symbol& symbol : workspace.symbols) append(part.substr(symbol.begin, symbol.n_bytes), symbol.id, out);
  }

  void append(std::string_view text, int32_t token, std::vector<TokenId>& out) const {
    if (token == Vocabulary::kNone) token = vocab_.find(text);
    if (token != Vocabulary::kNone) return out.push_back(token);
    append_bytes(text, out);
  }

  void append_bytes(std::string_view text, std::vector<TokenId>& out) const {
    for (const char byte : text) {
      const TokenId token = vocab_.byte_token(static_cast<uint8_t>(byte));
      if (token != Vocabulary::kNone) out.push_back(token);
    }
  }

  const Vocabulary& vocab_;
  std::vector<uint32_t> ranks_;  // by token
  bool space_prefix_;
  CharPairFilter char_pairs_;
};

}  // namespace

TokenizerModelResult load_sentencepiece(const GgufFile& file, const FoundPretokenizer&, Vocabulary& vocab) {
  ZINC_TRY(scores, file.get<std::vector<double>>("tokenizer.ggml.scores"));
  if (scores.size() < static_cast<size_t>(vocab.n_tokens())) {
    return fail(ErrorCode::invalid_input,
                "{}: tokenizer.ggml.scores has {} entries for {} tokens; the file is damaged or was converted wrongly",
                file.name(), scores.size(), vocab.n_tokens());
  }
  std::vector<uint32_t> ranks(scores.size());
  std::transform(scores.begin(), scores.end(), ranks.begin(), rank_of);
  const bool space_prefix = file.get_or("tokenizer.ggml.add_space_prefix", true);
  return std::unique_ptr<const TokenizerModel>(std::make_unique<SentencePiece>(vocab, std::move(ranks), space_prefix));
}

}  // namespace zinc
