// gemma4: a line starts as characters; pairs merge in the order of the merge list. Characters without a token become
// byte tokens.
#include <utility>

#include "text/tokenizer_joins.h"
#include "text/tokenizer_kind.h"
#include "text/tokenizer_pairs.h"

namespace zinc {
namespace {

std::string_view last_char(std::string_view text) {  // REQUIRES: !text.empty()
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0u) == 0x80) --at;
  return text.substr(at);
}

class CharBpe final : public TokenizerKind {
 public:
  CharBpe(const Vocabulary& vocab, MergeTable merges, const FoundPretokenizer& pretokenizer)
      : vocab_(vocab), merges_(std::move(merges)), pretokenizer_(pretokenizer) {
    merges_.for_each([this](int32_t left, int32_t right) {
      joins_.add(last_char(vocab_.bytes(left)), CharJoins::char_at_front(vocab_.bytes(right)));
    });
  }

  void encode(std::string_view text, bool, Workspace& space, std::vector<TokenId>& out) const override {
    LineEncoder lines(*this, space, out);
    pretokenizer_.rule->split(unify_spaces(repair_utf8(text, space.text), space.text), lines);
  }

 private:
  class LineEncoder final : public WordSink {
   public:
    LineEncoder(const CharBpe& bpe, Workspace& space, std::vector<TokenId>& out)
        : bpe_(bpe), space_(space), out_(out) {}
    void word(std::string_view line) override {
      if (line[0] == '\n') {  // a run of newlines
        if (const int32_t token = bpe_.vocab_.find(line); bpe_.vocab_.is_token(token)) return out_.push_back(token);
      }
      while (!line.empty()) {
        const size_t n_bytes = bpe_.joins_.part_bytes(line);
        encode_part(line.substr(0, n_bytes));
        line.remove_prefix(n_bytes);
      }
    }

   private:
    void encode_part(std::string_view part) {
      const uint64_t hash = hash_bytes(part);
      if (space_.cache.append(part, hash, out_)) return;
      const size_t n_before = out_.size();
      bpe_.merge_part(part, space_, out_);
      space_.cache.store(part, hash, out_.data() + n_before, out_.size() - n_before);
    }

    const CharBpe& bpe_;
    Workspace& space_;
    std::vector<TokenId>& out_;
  };

  void merge_part(std::string_view part, Workspace& space, std::vector<TokenId>& out) const {
    space.symbols.clear();
    for (size_t at = 0; at < part.size();) {
      const std::string_view character = CharJoins::char_at_front(part.substr(at));
      space.symbols.push_back(
          {static_cast<uint32_t>(at), static_cast<uint32_t>(character.size()), vocab_.find(character)});
      at += character.size();
    }
    merge_symbols(space, [this](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
    for (const Symbol& symbol : space.symbols) {
      if (vocab_.is_token(symbol.id)) {
        out.push_back(symbol.id);
        continue;
      }
      for (const char byte : part.substr(symbol.begin, symbol.n_bytes)) {
        const TokenId token = vocab_.byte_token(static_cast<uint8_t>(byte));
        if (token != Vocabulary::kNone) out.push_back(token);
      }
    }
  }

  const Vocabulary& vocab_;
  MergeTable merges_;
  FoundPretokenizer pretokenizer_;
  CharJoins joins_;
};

}  // namespace

TokenizerKindResult load_char_bpe(const GgufFile& file, const FoundPretokenizer& pretokenizer, Vocabulary& vocab) {
  ZINC_TRY(merges, MergeTable::load(file, Spelling::spaced, vocab));
  return std::unique_ptr<const TokenizerKind>(std::make_unique<CharBpe>(vocab, std::move(merges), pretokenizer));
}

}  // namespace zinc
