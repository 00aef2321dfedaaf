#include "text/marker_search.h"

namespace zinc {

MarkerMatch marker_at_start(std::string_view text, std::span<const std::string_view> markers) {
  for (const std::string_view marker : markers) {
    if (text.starts_with(marker)) return {0, marker};
    if (marker.starts_with(text)) return {0, {}};
  }
  return {1, {}};
}

MarkerMatch find_marker(std::string_view text, std::span<const std::string_view> markers) {
  std::string first_bytes;
  for (const std::string_view marker : markers) first_bytes += marker[0];
  for (size_t at = text.find_first_of(first_bytes); at < text.size(); at = text.find_first_of(first_bytes, at + 1)) {
    const MarkerMatch hit = marker_at_start(text.substr(at), markers);
    if (hit.before == 0) return {at, hit.marker};
  }
  return {text.size(), {}};
}

void LiteralMatcher::expect(std::string_view a, std::string_view b, std::string_view c) {
  literals_ = {a, b, c};
  seen_.clear();
}

LiteralMatcher::Step LiteralMatcher::push(char c) {
  if (seen_.empty() && is_json_space(c)) return Step::more;
  seen_ += c;
  for (const std::string_view literal : literals_) {
    if (literal == seen_) return Step::done;
    if (literal.starts_with(seen_)) return Step::more;
  }
  return Step::failed;
}

}  // namespace zinc
