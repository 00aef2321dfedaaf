#include "text/tokenizer_merges.h"

#include <algorithm>
#include <bit>
#include <string>

namespace zinc {
namespace {

// One merge being loaded. Half a million merges are looked up in tables larger than the CPU caches, so they are
// processed in batches with prefetching.
struct Line {
  std::string text;  // both pieces
  size_t n_left;
  uint64_t left_hash, right_hash;
  uint32_t rank;
  int32_t left, right;

  std::string_view left_text() const { return std::string_view(text).substr(0, n_left); }
  std::string_view right_text() const { return std::string_view(text).substr(n_left); }
};
constexpr size_t kBatch = 64;

// False if the line is malformed.
bool read_line(TokenTextFormat text_format, std::string_view text, Line& line) {
  const size_t space = text.find(' ', 1);  // a piece may start with a space
  if (space == std::string_view::npos) return false;
  line.text.clear();
  const bool left_exact = decode_token_text(text_format, text.substr(0, space), line.text);
  line.n_left = line.text.size();
  const bool right_exact = decode_token_text(text_format, text.substr(space + 1), line.text);
  line.left_hash = hash_bytes(line.left_text());
  line.right_hash = hash_bytes(line.right_text());
  return left_exact && right_exact && line.n_left > 0 && line.n_left < line.text.size();
}

// The symbol of the merged text. Most files list merges in token order, so guessing the next id saves a lookup.
int32_t merged_symbol(const std::string& text, int32_t previous, Vocabulary& vocab) {
  for (const int32_t guess : {previous, previous + 1}) {
    if (vocab.is_token(guess) && vocab.bytes(guess) == text && vocab.type(guess) == TokenType::normal) return guess;
  }
  return vocab.intern(text, hash_bytes(text));
}

}  // namespace

Result<MergeTable> MergeTable::load(const GgufFile& file, TokenTextFormat text_format, Vocabulary& vocab) {
  ZINC_TRY(texts, file.get<std::vector<std::string_view>>("tokenizer.ggml.merges"));
  MergeTable table;
  table.slots_.resize(std::bit_ceil(texts.size() + texts.size() / 2 + 2));
  std::vector<Line> lines(kBatch);
  int32_t merged = Vocabulary::kNone;
  for (size_t next = 0; next < texts.size();) {
    size_t n_lines = 0;
    for (; next < texts.size() && n_lines < kBatch; ++next) {
      Line& line = lines[n_lines];
      if (!read_line(text_format, texts[next], line)) continue;
      line.rank = static_cast<uint32_t>(next);
      vocab.prefetch(line.left_hash);
      vocab.prefetch(line.right_hash);
      ++n_lines;
    }
    for (size_t i = 0; i < n_lines; ++i) {
      lines[i].left = vocab.intern(lines[i].left_text(), lines[i].left_hash);
      lines[i].right = vocab.intern(lines[i].right_text(), lines[i].right_hash);
      table.prefetch(lines[i].left, lines[i].right);
    }
    for (size_t i = 0; i < n_lines; ++i) {
      merged = merged_symbol(lines[i].text, merged, vocab);
      if (std::min({lines[i].left, lines[i].right, merged}) < 0) {
        return fail(ErrorCode::unsupported, "{}: tokenizer.ggml.merges exceeds the limit of 4 GiB", file.name());
      }
      table.add(lines[i].left, lines[i].right, {lines[i].rank, merged});
    }
  }
  return table;
}

void MergeTable::add(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  for (size_t at = hash_of(key);; ++at) {
    Slot& slot = slots_[at & (slots_.size() - 1)];
    if (slot.key == key) return;
    if (slot.key != kEmpty) continue;
    slot = {key, merge};
    return;
  }
}

}  // namespace zinc
