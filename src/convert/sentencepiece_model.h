// Reads tokenizer.model of SentencePiece, a protobuf: the pieces, and what of the settings GGUF needs. Bounds-checked;
// unknown fields are skipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace zinc {

// Numbers as in the file, and the same in GGUF's token types.
enum class PieceType : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct SentencePieceModel {
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::normal;
  };
  std::vector<Piece> pieces;
  bool is_unigram = true;         // else BPE; the default of the format
  bool adds_space_prefix = true;  // add_dummy_prefix
};

// `name` is the file's, for messages.
Result<SentencePieceModel> parse_sentencepiece_model(std::span<const std::byte> bytes, std::string_view name);

}  // namespace zinc
