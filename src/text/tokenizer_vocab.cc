#include "text/tokenizer_vocab.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace zinc {
namespace {

constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581
constexpr size_t kMaxArena = std::numeric_limits<uint32_t>::max();

uint64_t load64(const char* at) {
  uint64_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

uint64_t load_tail(const char* at, size_t n_bytes) {  // REQUIRES: 1 <= n_bytes <= 8
  if (n_bytes == 8) return load64(at);
  if (n_bytes >= 4) {
    uint32_t low, high;
    std::memcpy(&low, at, sizeof low);
    std::memcpy(&high, at + n_bytes - 4, sizeof high);
    return low | (uint64_t{high} << 32);
  }
  const auto byte = [at](size_t i) { return uint64_t{static_cast<uint8_t>(at[i])}; };
  return byte(0) | (byte(n_bytes / 2) << 8) | (byte(n_bytes - 1) << 16);
}

uint64_t load_head(std::string_view bytes) {  // the first eight bytes, zero-padded
  if (bytes.size() >= sizeof(uint64_t)) return load64(bytes.data());
  uint64_t head = 0;
  for (size_t i = 0; i < bytes.size(); ++i) head |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return head;
}

// GPT-2's byte alphabet: printable bytes map to themselves, the others to U+0100 and up, in order.
constexpr int kByteLevelCodes = 0x144;
std::array<int16_t, kByteLevelCodes> make_byte_level_bytes() {
  std::array<int16_t, kByteLevelCodes> byte_of;
  byte_of.fill(-1);
  int16_t next = 0x100;
  for (int16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    byte_of[static_cast<size_t>(printable ? byte : next++)] = byte;
  }
  return byte_of;
}

bool decode_byte_level(std::string_view text, std::string& out) {
  static const std::array<int16_t, kByteLevelCodes> byte_of = make_byte_level_bytes();
  bool exact = true;
  const size_t n_before = out.size();
  out.resize(n_before + text.size());  // never longer
  char* to = out.data() + n_before;
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<uint8_t>(text[at]);
    const bool is_pair = lead >= 0xC2 && lead <= 0xC5 && at + 1 < text.size() &&
                         (static_cast<uint8_t>(text[at + 1]) & 0xC0u) == 0x80;  // the alphabet outside ASCII
    const uint32_t code = is_pair ? (lead & 0x1Fu) << 6 | (static_cast<uint8_t>(text[at + 1]) & 0x3Fu) : lead;
    const int16_t byte = code < kByteLevelCodes && (is_pair || lead < 0x80) ? byte_of[code] : int16_t{-1};
    if (byte >= 0) {
      *to++ = static_cast<char>(byte);
      at += is_pair ? 2 : 1;
    } else {
      *to++ = text[at++];
      exact = false;
    }
  }
  out.resize(static_cast<size_t>(to - out.data()));
  return exact;
}

bool decode_metaspace(std::string_view text, std::string& out) {
  const bool exact = text.find(' ') == std::string_view::npos;
  for (size_t at = 0; at < text.size();) {
    const size_t mark = std::min(text.find(kSpaceSymbol, at), text.size());
    out.append(text.substr(at, mark - at));
    if (mark < text.size()) out.push_back(' ');
    at = mark + kSpaceSymbol.size();
  }
  return exact;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// The bytes of a token. Returns whether plain text may be encoded as this token.
bool token_bytes(TokenTextFormat text_format, std::string_view text, TokenType type, std::string& bytes) {
  switch (type) {
    case TokenType::byte:
      if (const int byte = parse_byte_token(text); byte >= 0) bytes.push_back(static_cast<char>(byte));
      return false;
    case TokenType::unused:  // empty: never encoded, prints nothing if sampled
      return false;
    case TokenType::unknown:
    case TokenType::control:
    case TokenType::visible_control:
      bytes = text;
      return false;
    case TokenType::user_defined:
      if (text_format == TokenTextFormat::metaspace) return decode_token_text(text_format, text, bytes);
      bytes = text;  // literal text; findable if it is the same in the byte alphabet
      return std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x21 && c <= 0x7E; });
    case TokenType::undefined:
    case TokenType::normal:
      break;
  }
  return decode_token_text(text_format, text, bytes);
}

}  // namespace

int parse_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

uint64_t hash_bytes(std::string_view bytes) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15u, kFinal = 0xD6E8FEB86659FD93u;
  uint64_t hash = bytes.size() * kFactor;
  const char* at = bytes.data();
  size_t n_left = bytes.size();
  for (; n_left > 8; n_left -= 8, at += 8) {
    hash = (hash ^ load64(at)) * kFactor;
    hash ^= hash >> 32;
  }
  if (n_left > 0) hash = (hash ^ load_tail(at, n_left)) * kFactor;
  hash = (hash ^ (hash >> 32)) * kFinal;
  return hash ^ (hash >> 32);
}

bool decode_token_text(TokenTextFormat text_format, std::string_view text, std::string& out) {
  return text_format == TokenTextFormat::byte_level ? decode_byte_level(text, out) : decode_metaspace(text, out);
}

Result<Vocabulary> Vocabulary::build(TokenTextFormat text_format, const std::vector<std::string_view>& texts,
                                     const std::vector<TokenType>& types) {
  Vocabulary vocab;
  vocab.n_tokens_ = static_cast<int32_t>(texts.size());
  vocab.types_ = types;
  vocab.byte_tokens_.fill(kNone);
  vocab.begins_.reserve(texts.size() + 1);
  vocab.slots_.resize(std::bit_ceil(texts.size() + texts.size() / 2 + 2));
  std::vector<TokenId> findable, user_defined;
  std::string bytes;
  for (int32_t id = 0; id < vocab.n_tokens_; ++id) {
    const TokenType type = types[static_cast<size_t>(id)];
    bytes.clear();
    const bool is_findable = token_bytes(text_format, texts[static_cast<size_t>(id)], type, bytes) && !bytes.empty();
    if (!vocab.append(bytes)) return fail(ErrorCode::unsupported, "the token texts exceed the limit of 4 GiB");
    if (is_findable) (type == TokenType::user_defined ? user_defined : findable).push_back(id);
    if (type == TokenType::byte && bytes.size() == 1) {
      TokenId& of_byte = vocab.byte_tokens_[static_cast<uint8_t>(bytes[0])];
      if (of_byte == kNone) of_byte = id;
    }
  }
  vocab.index(findable);
  vocab.index(user_defined);  // after the normal tokens, which win for equal bytes
  return vocab;
}

void Vocabulary::index(const std::vector<TokenId>& ids) {
  std::vector<uint64_t> hashes(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) hashes[i] = hash_bytes(bytes(ids[i]));
  constexpr size_t kPrefetchDistance = 16;  // the table does not fit the CPU cache
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + kPrefetchDistance < ids.size()) prefetch(hashes[i + kPrefetchDistance]);
    insert(ids[i], hashes[i]);
  }
}

bool Vocabulary::append(std::string_view bytes) {
  if (bytes.size() > kMaxArena - arena_.size()) return false;
  arena_.append(bytes);
  begins_.push_back(static_cast<uint32_t>(arena_.size()));
  max_bytes_ = std::max(max_bytes_, bytes.size());
  return true;
}

Vocabulary::Slot Vocabulary::slot_of(std::string_view bytes, uint64_t hash) {
  constexpr uint32_t kLengthMask = 0xFF;
  const auto length = static_cast<uint32_t>(std::min<size_t>(bytes.size(), kLengthMask));
  return {load_head(bytes), (static_cast<uint32_t>(hash >> 32) & ~kLengthMask) | length, kNone};
}

bool Vocabulary::is_at(const Slot& slot, const Slot& wanted, std::string_view text) const {
  if (slot.tag != wanted.tag || slot.head != wanted.head) return false;
  return text.size() <= sizeof slot.head || bytes(slot.symbol) == text;
}

int32_t Vocabulary::find(std::string_view text, uint64_t hash) const {
  const Slot wanted = slot_of(text, hash);
  for (size_t at = hash;; ++at) {
    const Slot& slot = slots_[at & (slots_.size() - 1)];
    if (slot.symbol == kNone || is_at(slot, wanted, text)) return slot.symbol;
  }
}

void Vocabulary::insert(int32_t symbol, uint64_t hash) {
  const std::string_view text = bytes(symbol);
  Slot wanted = slot_of(text, hash);
  for (size_t at = hash;; ++at) {
    Slot& slot = slots_[at & (slots_.size() - 1)];
    if (slot.symbol == kNone) {
      wanted.symbol = symbol;
      slot = wanted;
      ++n_indexed_;
      return;
    }
    if (is_at(slot, wanted, text)) return;
  }
}

int32_t Vocabulary::intern(std::string_view text, uint64_t hash) {
  if (const int32_t known = find(text, hash); known != kNone) return known;
  const auto symbol = static_cast<int32_t>(begins_.size() - 1);
  if (begins_.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) || !append(text)) return kNone;
  if ((n_indexed_ + 1) * 4 > slots_.size() * 3) grow();
  insert(symbol, hash);
  return symbol;
}

void Vocabulary::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  n_indexed_ = 0;
  for (const Slot& slot : old) {
    if (slot.symbol != kNone) insert(slot.symbol, hash_bytes(bytes(slot.symbol)));
  }
}

}  // namespace zinc
