#include "text/tokenizer_pairs.h"

#include <bit>
#include <string>

namespace zinc {

Result<MergeTable> MergeTable::load(const GgufFile& file, Spelling spelling, Vocabulary& vocab) {
  ZINC_TRY(lines, file.get<std::vector<std::string_view>>("tokenizer.ggml.merges"));
  MergeTable table;
  table.slots_.resize(std::bit_ceil(lines.size() + lines.size() / 2 + 2));
  std::string both;
  for (size_t rank = 0; rank < lines.size(); ++rank) {
    const std::string_view line = lines[rank];
    const size_t space = line.find(' ', 1);  // a piece may itself begin with a space
    if (space == std::string_view::npos) continue;
    both.clear();
    const bool left_exact = unspell(spelling, line.substr(0, space), both);
    const size_t n_left = both.size();
    const bool right_exact = unspell(spelling, line.substr(space + 1), both);
    if (!left_exact || !right_exact || both.size() == n_left) continue;  // no text is spelled so
    const std::string_view text = both;
    const int32_t left = vocab.intern(text.substr(0, n_left)), right = vocab.intern(text.substr(n_left));
    const int32_t symbol = vocab.intern(text);
    if (left < 0 || right < 0 || symbol < 0) {
      return fail(ErrorCode::unsupported, "{}: tokenizer.ggml.merges has over 4 GiB of text", file.name());
    }
    table.add(left, right, {static_cast<uint32_t>(rank), symbol});
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
