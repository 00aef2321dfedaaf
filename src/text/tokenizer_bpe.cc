#include "text/tokenizer_bpe.h"

#include <bit>

namespace zinc {
namespace {

constexpr size_t kMinCachedText = 1024;  // below that, few words repeat
constexpr size_t kBytesPerSlot = 16;
constexpr size_t kMaxSlots = 16384;  // 1 MiB: more would not fit the CPU cache

}  // namespace

WordCache::WordCache(size_t text_bytes) {
  if (text_bytes >= kMinCachedText) slots_.resize(std::min(std::bit_ceil(text_bytes / kBytesPerSlot), kMaxSlots));
}

void WordCache::store(std::string_view word, uint64_t hash, const TokenId* ids, size_t n_ids) {
  if (slots_.empty() || word.size() > kMaxWord || n_ids > kMaxIds) return;
  Slot& slot = slots_[hash & (slots_.size() - 1)];
  slot.n_bytes = static_cast<uint8_t>(word.size());
  slot.n_ids = static_cast<uint8_t>(n_ids);
  std::memcpy(slot.word, word.data(), word.size());
  std::copy(ids, ids + n_ids, slot.ids);
}

}  // namespace zinc
