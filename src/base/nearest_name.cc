#include "base/nearest_name.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace zinc {
namespace {

constexpr size_t kMaxCompared = 100;  // longer words are not model names
constexpr size_t kMinGuessed = 3;     // shorter words are near too many names

std::string lower(std::string_view text) {
  std::string out(text.substr(0, kMaxCompared));
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

}  // namespace

size_t edit_distance(std::string_view first, std::string_view second) {
  const std::string a = lower(first), b = lower(second);
  std::vector<size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      const bool is_swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_swap) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = std::exchange(last, row);
  }
  return last[b.size()];
}

std::optional<std::string> nearest_name(std::string_view typed, std::span<const std::string> names) {
  const std::string wanted = lower(typed);
  std::optional<std::string> best;
  if (wanted.size() < kMinGuessed) return std::nullopt;
  size_t best_distance = std::max<size_t>(1, wanted.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::string known = lower(name);
    const bool is_part = known.find(wanted) != std::string::npos;
    const size_t distance = is_part ? 1 : edit_distance(wanted, known);
    if (distance < best_distance) best_distance = distance, best = name;
  }
  return best;
}

}  // namespace zinc
