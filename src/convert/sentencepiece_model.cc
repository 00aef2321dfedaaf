#include "convert/sentencepiece_model.h"

#include <cstring>

namespace zinc {
namespace {

// Fields of ModelProto, its SentencePiece, TrainerSpec and NormalizerSpec in sentencepiece_model.proto.
constexpr uint64_t kPieces = 1, kTrainer = 2, kNormalizer = 3;
constexpr uint64_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr uint64_t kModelType = 3, kAddDummyPrefix = 3;
constexpr uint64_t kUnigram = 1, kBpe = 2;

enum class WireType : uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct Field {
  uint64_t number;
  WireType type;
  uint64_t varint;
  std::span<const std::byte> bytes;  // of fixed32, fixed64 and bytes
};

class FieldReader {
 public:
  explicit FieldReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  bool at_end() const { return rest_.empty(); }
  // False: the bytes are not a field.
  bool next(Field& field) {
    uint64_t tag = 0;
    if (!read_varint(tag) || tag >> 3 == 0) return false;
    field = {.number = tag >> 3, .type = static_cast<WireType>(tag & 7), .varint = 0, .bytes = {}};
    switch (field.type) {
      case WireType::varint:
        return read_varint(field.varint);
      case WireType::fixed64:
        return read_bytes(8, field.bytes);
      case WireType::fixed32:
        return read_bytes(4, field.bytes);
      case WireType::bytes: {
        uint64_t n_bytes = 0;
        return read_varint(n_bytes) && read_bytes(n_bytes, field.bytes);
      }
    }
    return false;
  }

 private:
  bool read_varint(uint64_t& out) {
    constexpr int kMaxBits = 64;
    out = 0;
    for (int shift = 0; shift < kMaxBits && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<uint64_t>(rest_[0]);
      rest_ = rest_.subspan(1);
      out |= (byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool read_bytes(uint64_t n_bytes, std::span<const std::byte>& out) {
    if (n_bytes > rest_.size()) return false;
    out = rest_.first(n_bytes);
    rest_ = rest_.subspan(n_bytes);
    return true;
  }

  std::span<const std::byte> rest_;
};

// Calls visit(field) for the fields of a message; false if it is malformed.
template <class Visit>
bool for_each_field(std::span<const std::byte> message, Visit visit) {
  FieldReader reader(message);
  while (!reader.at_end()) {
    Field field;
    if (!reader.next(field) || !visit(field)) return false;
  }
  return true;
}

bool read_piece(std::span<const std::byte> message, SentencePieceModel::Piece& piece) {
  return for_each_field(message, [&](const Field& field) {
    if (field.number == kPieceText && field.type == WireType::bytes) {
      piece.text.assign(reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size());
    } else if (field.number == kPieceScore && field.type == WireType::fixed32) {
      std::memcpy(&piece.score, field.bytes.data(), sizeof(piece.score));
    } else if (field.number == kPieceType && field.type == WireType::varint) {
      if (field.varint < 1 || field.varint > static_cast<uint64_t>(PieceType::byte)) return false;
      piece.type = static_cast<PieceType>(field.varint);
    }
    return true;
  });
}

}  // namespace

Result<SentencePieceModel> parse_sentencepiece_model(std::span<const std::byte> bytes, std::string_view name) {
  SentencePieceModel model;
  bool is_known_kind = true;
  const bool is_valid = for_each_field(bytes, [&](const Field& field) {
    if (field.type != WireType::bytes) return true;
    if (field.number == kPieces) return read_piece(field.bytes, model.pieces.emplace_back());
    if (field.number == kTrainer) {
      return for_each_field(field.bytes, [&](const Field& setting) {
        if (setting.number != kModelType) return true;
        model.is_unigram = setting.varint == kUnigram;
        is_known_kind = setting.varint == kUnigram || setting.varint == kBpe;
        return true;
      });
    }
    if (field.number != kNormalizer) return true;
    return for_each_field(field.bytes, [&](const Field& setting) {
      if (setting.number == kAddDummyPrefix) model.adds_space_prefix = setting.varint != 0;
      return true;
    });
  });
  if (!is_valid || model.pieces.empty()) {
    return fail(ErrorCode::invalid_input,
                "{}: is not a SentencePiece model; if it is a Git LFS pointer, get the file itself with 'git lfs pull'",
                name);
  }
  if (is_known_kind) return model;
  return fail(ErrorCode::unsupported,
              "{}: the SentencePiece model splits into words or characters; supported are BPE "
              "and Unigram",
              name);
}

}  // namespace zinc
