// llama (SentencePiece): the whole text starts as characters; the two neighbours that make the token with the best
// score merge first. Characters without a token become byte tokens.
#include <bit>
#include <cmath>

#include "text/tokenizer_joins.h"
#include "text/tokenizer_kind.h"

namespace zinc {
namespace {

// Scores in an order where the lowest rank is the best score: the bits of a float, turned around. NaN comes last.
uint32_t rank_of(double score) {
  const auto value = static_cast<float>(score) + 0.0f;  // no negative zero
  if (std::isnan(value)) return Merge::kNever - 1;
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000u;
  return std::min(~ascending, Merge::kNever - 1);
}

class Scored final : public TokenizerKind {
 public:
  Scored(const Vocabulary& vocab, std::vector<uint32_t> ranks, bool space_prefix)
      : vocab_(vocab), ranks_(std::move(ranks)), space_prefix_(space_prefix) {
    for (TokenId id = 0; id < vocab_.n_tokens(); ++id) {
      const TokenType type = vocab_.type(id);
      if (!is_special(type) || type == TokenType::user_defined) joins_.add_all(vocab_.bytes(id));
    }
  }

  void encode(std::string_view text, bool at_start, Workspace& space, std::vector<TokenId>& out) const override {
    if (space_prefix_ && at_start) {
      space.text.assign(1, ' ').append(text);
      text = space.text;
    }
    if (is_sound_utf8(text)) {
      encode_sound(text, space, out);
    } else {
      encode_broken(text, space, out);
    }
  }

  bool adds_space() const override { return space_prefix_; }

 private:
  void encode_sound(std::string_view text, Workspace& space, std::vector<TokenId>& out) const {
    text = unify_spaces(text, space.text);
    while (!text.empty()) {
      const size_t n_bytes = joins_.part_bytes(text);
      encode_part(text.substr(0, n_bytes), space, out);
      text.remove_prefix(n_bytes);
    }
  }

  // As llama.cpp does it: a lead byte takes as many bytes as it asks for, be they a part of U+2581, which stands for a
  // space by then. What is no character becomes byte tokens; what lies between is ordinary text.
  void encode_broken(std::string_view text, Workspace& space, std::vector<TokenId>& out) const {
    const std::string marked = mark_spaces(text);
    const std::string_view rest = marked;
    size_t sound = 0, at = 0;  // [sound, at) are whole characters
    while (at < rest.size()) {
      const std::string_view character = CharJoins::char_at_front(rest.substr(at));
      if (!is_whole_char(character)) {
        encode_sound(rest.substr(sound, at - sound), space, out);
        append_bytes(character, out);
        sound = at + character.size();
      }
      at += character.size();
    }
    encode_sound(rest.substr(sound), space, out);
  }

  void encode_part(std::string_view part, Workspace& space, std::vector<TokenId>& out) const {
    const uint64_t hash = hash_bytes(part);
    if (space.cache.append(part, hash, out)) return;
    const size_t n_before = out.size();
    merge_part(part, space, out);
    space.cache.store(part, hash, out.data() + n_before, out.size() - n_before);
  }

  void merge_part(std::string_view part, Workspace& space, std::vector<TokenId>& out) const {
    space.symbols.clear();
    for (size_t at = 0; at < part.size();) {
      const size_t n_bytes = CharJoins::char_at_front(part.substr(at)).size();
      space.symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(n_bytes), Vocabulary::kNone});
      at += n_bytes;
    }
    merge_symbols(space, [this, part](const Symbol& left, const Symbol& right) -> Merge {
      const size_t n_bytes = size_t{left.n_bytes} + right.n_bytes;
      if (n_bytes > vocab_.max_bytes()) return {};
      const int32_t token = vocab_.find(part.substr(left.begin, n_bytes));
      return token == Vocabulary::kNone ? Merge{} : Merge{ranks_[static_cast<size_t>(token)], token};
    });
    for (const Symbol& symbol : space.symbols) append(part.substr(symbol.begin, symbol.n_bytes), symbol.id, out);
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
  CharJoins joins_;
};

}  // namespace

TokenizerKindResult load_scored(const GgufFile& file, const FoundPretokenizer&, Vocabulary& vocab) {
  ZINC_TRY(scores, file.get<std::vector<double>>("tokenizer.ggml.scores"));
  if (scores.size() < static_cast<size_t>(vocab.n_tokens())) {
    return fail(ErrorCode::invalid_input,
                "{}: tokenizer.ggml.scores has {} entries for {} tokens; the file is damaged or was converted wrongly",
                file.name(), scores.size(), vocab.n_tokens());
  }
  std::vector<uint32_t> ranks(scores.size());
  std::transform(scores.begin(), scores.end(), ranks.begin(), rank_of);
  const bool space_prefix = file.get_or("tokenizer.ggml.add_space_prefix", true);
  return std::unique_ptr<const TokenizerKind>(std::make_unique<Scored>(vocab, std::move(ranks), space_prefix));
}

}  // namespace zinc
