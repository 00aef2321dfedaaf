// Marker search in streamed text: the first of several markers, or one expected literal.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace zinc {

struct MarkerMatch {
  size_t before;            // leading bytes that cannot be part of a marker
  std::string_view marker;  // empty: no complete match; text after `before` may be a partial one
};

// The leftmost marker in `text`. Without a complete match, `before` ends at the first suffix that is a marker's prefix.
MarkerMatch find_marker(std::string_view text, std::span<const std::string_view> markers);

// The same, anchored at the start of `text`: `before` is 0 for a complete or partial match.
MarkerMatch marker_at_start(std::string_view text, std::span<const std::string_view> markers);

// Matches one of up to three literals after optional white space, byte by byte. None may be a prefix of another.
class LiteralMatcher {
 public:
  enum class Step : uint8_t { more, done, failed };  // failed: no literal matches

  void expect(std::string_view a, std::string_view b = {}, std::string_view c = {});
  Step push(char c);
  std::string_view found() const { return seen_; }  // after `done`: the literal
  bool has_begun() const { return !seen_.empty(); }

 private:
  std::array<std::string_view, 3> literals_;
  std::string seen_;
};

inline bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace zinc
