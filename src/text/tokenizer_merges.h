// The file's merges as a hash table: pair of symbols -> merged symbol and rank. Immutable after load.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "gguf/gguf_file.h"
#include "text/tokenizer_bpe.h"
#include "text/tokenizer_vocab.h"

namespace zinc {

class MergeTable {
 public:
  // Reads tokenizer.ggml.merges. Pieces that are not tokens are interned.
  static Result<MergeTable> load(const GgufFile& file, TokenTextFormat text_format, Vocabulary& vocab);

  Merge find(int32_t left, int32_t right) const {
    if (left < 0 || right < 0) return {};
    const uint64_t key = key_of(left, right);
    for (size_t at = hash_of(key);; ++at) {
      const Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.key == key) return slot.merge;
      if (slot.key == kEmpty) return {};
    }
  }

  // Calls visit(left, right) for each pair that merges.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.key != kEmpty) visit(static_cast<int32_t>(slot.key >> 32), static_cast<int32_t>(slot.key & 0xFFFFFFFFu));
    }
  }

 private:
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // ids are non-negative
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  static size_t hash_of(uint64_t key) {
    key *= 0x9E3779B97F4A7C15u;
    return key ^ (key >> 32);
  }
  void add(int32_t left, int32_t right, Merge merge);  // keeps the first of equal pairs
  void prefetch(int32_t left, int32_t right) const {
    __builtin_prefetch(&slots_[hash_of(key_of(left, right)) & (slots_.size() - 1)]);
  }

  std::vector<Slot> slots_;
};

}  // namespace zinc
