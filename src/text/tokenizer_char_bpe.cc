// gemma4: character-level BPE over lines, with byte fallback for characters without a token.
#include <utility>

#include "text/tokenizer_char_pairs.h"
#include "text/tokenizer_merges.h"
#include "text/tokenizer_model.h"

namespace zinc {
namespace {

std::string_view last_char(std::string_view text) {  // REQUIRES: !text.empty()
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0u) == 0x80) --at;
  return text.substr(at);
}

class CharBpe final : public TokenizerModel {
 public:
  CharBpe(const Vocabulary& vocab, MergeTable merges, const FoundPretokenizer& pretokenizer)
      : vocab_(vocab), merges_(std::move(merges)), pretokenizer_(pretokenizer) {
    merges_.for_each([this](int32_t left, int32_t right) {
      char_pairs_.add(last_char(vocab_.bytes(left)), CharPairFilter::char_at_front(vocab_.bytes(right)));
    });
  }

  void encode(std::string_view text, bool, Workspace& workspace, std::vector<TokenId>& out) const override {
    LineEncoder lines(*this, workspace, out);
    pretokenizer_.rule->split(unescape_whitespace(repair_utf8(text, workspace.text), workspace.text), lines);
  }

 private:
  class LineEncoder final : public WordSink {
   public:
    LineEncoder(const CharBpe& bpe, Workspace& workspace, std::vector<TokenId>& out)
        : bpe_(bpe), workspace_(workspace), out_(out) {}
    void word(std::string_view line) override {
      if (line[0] == '\n') {  // a run of newlines
        if (const int32_t token = bpe_.vocab_.find(line); bpe_.vocab_.is_token(token)) return out_.push_back(token);
      }
      while (!line.empty()) {
        const size_t n_bytes = bpe_.char_pairs_.part_bytes(line);
        encode_part(line.substr(0, n_bytes));
        line.remove_prefix(n_bytes);
      }
    }

   private:
    void encode_part(std::string_view part) {
      const uint64_t hash = hash_bytes(part);
      if (workspace_.cache.append(part, hash, out_)) return;
      const size_t n_before = out_.size();
      bpe_.merge_part(part, workspace_, out_);
      workspace_.cache.store(part, hash, out_.data() + n_before, out_.size() - n_before);
    }

    const CharBpe& bpe_;
    Workspace& workspace_;
    std::vector<TokenId>& out_;
  };

  void merge_part(std::string_view part, Workspace& workspace, std::vector<TokenId>& out) const {
    workspace.symbols.clear();
    for (size_t at = 0; at < part.size();) {
      const std::string_view character = CharPairFilter::char_at_front(part.substr(at));
      workspace.symbols.push_back(
          {static_cast<uint32_t>(at), static_cast<uint32_t>(character.size()), vocab_.find(character)});
      at += character.size();
    }
    merge_symbols(workspace,
                  [this](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
    for (const Symbol& symbol : workspace.symbols) {
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
  CharPairFilter char_pairs_;
};

}  // namespace

TokenizerModelResult load_char_bpe(const GgufFile& file, const FoundPretokenizer& pretokenizer, Vocabulary& vocab) {
  ZINC_TRY(merges, MergeTable::load(file, TokenTextFormat::metaspace, vocab));
  return std::unique_ptr<const TokenizerModel>(std::make_unique<CharBpe>(vocab, std::move(merges), pretokenizer));
}

}  // namespace zinc
