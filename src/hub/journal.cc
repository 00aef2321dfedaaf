#include "hub/journal.h"

#include <charconv>

#include "base/json.h"

namespace zinc {
namespace {

constexpr std::string_view kFormat = "zinc-journal-1";
constexpr uint64_t kMaxChunks = uint64_t{1} << 24;  // 64 TiB in chunks of 4 MiB

std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return text = {}, std::string_view();
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

std::optional<JournalHead> parse_head(std::string_view line) {
  const Result<json::value> parsed = parse_json(line);
  const json::object* object = parsed.ok() ? parsed.value().if_object() : nullptr;
  if (!object) return std::nullopt;
  const auto text = [&](std::string_view key) {
    const json::value* value = object->if_contains(key);
    return value && value->is_string() ? std::string(value->as_string()) : std::string();
  };
  const auto number = [&](std::string_view key) -> uint64_t {
    const json::value* value = object->if_contains(key);
    return value && value->is_int64() && value->as_int64() > 0 ? static_cast<uint64_t>(value->as_int64()) : 0;
  };
  const JournalHead head{number("bytes"), number("chunk_bytes"), text("identity")};
  const bool is_ours = text("format") == kFormat && head.n_bytes > 0 && head.chunk_bytes > 0;
  if (!is_ours || head.n_bytes / head.chunk_bytes >= kMaxChunks) return std::nullopt;
  return head;
}

// "<chunk> <digest>" or "<chunk> -".
void apply_line(std::string_view line, Journal& journal) {
  uint64_t chunk = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), chunk);
  const std::string_view rest = line.substr(static_cast<size_t>(end - line.data()));
  if (error != std::errc() || chunk >= journal.chunks.size() || !rest.starts_with(' ')) return;
  const std::string_view digest = rest.substr(1);
  if (digest == "-") journal.chunks[chunk] = std::nullopt;
  if (const auto parsed = parse_sha256(digest)) journal.chunks[chunk] = parsed;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string journal_head_line(const JournalHead& head) {
  return to_json(json::object{{"format", kFormat},
                              {"bytes", static_cast<int64_t>(head.n_bytes)},
                              {"chunk_bytes", static_cast<int64_t>(head.chunk_bytes)},
                              {"identity", head.identity}}) +
         "\n";
}

std::string journal_chunk_line(uint64_t chunk, const std::optional<Sha256::Digest>& digest) {
  return fmt::format("{} {}\n", chunk, digest ? to_hex(*digest) : "-");
}

std::optional<Journal> parse_journal(std::string_view text) {
  const std::optional<JournalHead> head = parse_head(next_line(text));
  if (!head) return std::nullopt;
  Journal journal{*head, std::vector<std::optional<Sha256::Digest>>(head->n_chunks())};
  while (!text.empty()) apply_line(next_line(text), journal);
  return journal;
}

std::optional<Sha256::Digest> parse_sha256(std::string_view hex) {
  Sha256::Digest digest;
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return digest;
}

}  // namespace zinc
