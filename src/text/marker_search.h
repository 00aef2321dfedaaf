// Markers in text that is still arriving: finding the first of several, and waiting for the one that has to come.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace zinc {

struct MarkerHit {
  size_t before;            // bytes in front that are certainly no part of a marker
  std::string_view marker;  // empty: none found; text after `before` may still become one
};

// The leftmost marker in `text`. Where none is whole, `before` ends at the first suffix that begins one.
MarkerHit find_marker(std::string_view text, std::span<const std::string_view> markers);

// The same for the start of `text` alone: `before` is 0 if a marker, or a part of one, stands there.
MarkerHit marker_at_start(std::string_view text, std::span<const std::string_view> markers);

// Expects one of up to three literals after optional white space, byte by byte. None may begin another.
class LiteralMatch {
 public:
  enum class Step : uint8_t { more, done, failed };  // failed: the byte belongs to no literal

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
