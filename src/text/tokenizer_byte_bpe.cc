// gpt2: byte-level BPE over the words of the pre-tokenizer.
#include <array>
#include <utility>

#include "text/tokenizer_merges.h"
#include "text/tokenizer_model.h"
#include "text/tokenizer_normalizer.h"

namespace zinc {
namespace {

class ByteBpe final : public TokenizerModel {
 public:
  ByteBpe(const Vocabulary& vocab, MergeTable merges, const FoundPretokenizer& pretokenizer)
      : vocab_(vocab), merges_(std::move(merges)), pretokenizer_(pretokenizer) {
    for (size_t byte = 0; byte < byte_symbols_.size(); ++byte) {
      const char text = static_cast<char>(byte);
      byte_symbols_[byte] = vocab_.find({&text, 1});
    }
  }

  void encode(std::string_view text, bool, Workspace& workspace, std::vector<TokenId>& out) const override {
    WordEncoder words(*this, workspace, out);
    pretokenizer_.rule->split(repair_utf8(text, workspace.text), words);
  }

 private:
  class WordEncoder final : public WordSink {
   public:
    WordEncoder(const ByteBpe& bpe, Workspace& workspace, std::vector<TokenId>& out)
        : bpe_(bpe), workspace_(workspace), out_(out) {}
    void word(std::string_view word) override {
      const uint64_t hash = hash_bytes(word);
      if (workspace_.cache.append(word, hash, out_)) return;
      const size_t n_before = out_.size();
      bpe_.encode_word(word, workspace_, out_);
      workspace_.cache.store(word, hash, out_.data() + n_before, out_.size() - n_before);
    }

   private:
    const ByteBpe& bpe_;
    Workspace& workspace_;
    std::vector<TokenId>& out_;
  };

  void encode_word(std::string_view word, Workspace& workspace, std::vector<TokenId>& out) const {
    if (pretokenizer_.name->ignore_merges) {
      if (const int32_t token = vocab_.find(word); vocab_.is_token(token)) return out.push_back(token);
    }
    workspace.symbols.clear();
    for (uint32_t at = 0; at < word.size(); ++at) {
      workspace.symbols.push_back({at, 1, byte_symbols_[static_cast<uint8_t>(word[at])]});
    }
    merge_symbols(workspace,
                  [this](const Symbol& left, const Symbol& right) { return merges_.find(left.id, right.id); });
    for (const Symbol& symbol : workspace.symbols) append(word, symbol, out);
  }

  // A symbol that is not a token falls back to its bytes; bytes missing in the vocabulary are dropped.
  void append(std::string_view word, const Symbol& symbol, std::vector<TokenId>& out) const {
    if (vocab_.is_token(symbol.id)) return out.push_back(symbol.id);
    for (const char byte : word.substr(symbol.begin, symbol.n_bytes)) {
      const int32_t token = byte_symbols_[static_cast<uint8_t>(byte)];
      if (vocab_.is_token(token)) out.push_back(token);
    }
  }

  const Vocabulary& vocab_;
  MergeTable merges_;
  FoundPretokenizer pretokenizer_;
  std::array<int32_t, 256> byte_symbols_;
};

}  // namespace

TokenizerModelResult load_byte_bpe(const GgufFile& file, const FoundPretokenizer& pretokenizer, Vocabulary& vocab) {
  ZINC_TRY(merges, MergeTable::load(file, TokenTextFormat::byte_level, vocab));
  return std::unique_ptr<const TokenizerModel>(std::make_unique<ByteBpe>(vocab, std::move(merges), pretokenizer));
}

}  // namespace zinc
