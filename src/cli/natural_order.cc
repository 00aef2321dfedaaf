#include "cli/natural_order.h"

#include <cstddef>

namespace zinc {

bool natural_less(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto digits = [&](std::string_view text) {
    size_t n = 0;
    while (n < text.size() && is_digit(text[n])) ++n;
    return text.substr(0, n);
  };
  while (!a.empty() && !b.empty()) {
    const std::string_view x = digits(a), y = digits(b);
    if (!x.empty() && !y.empty() && x != y) return x.size() != y.size() ? x.size() < y.size() : x < y;
    const size_t n = x.empty() || y.empty() ? 1 : x.size();
    if (n == 1 && a[0] != b[0]) return a[0] < b[0];
    a.remove_prefix(n);
    b.remove_prefix(n);
  }
  return a.size() < b.size();
}

}  // namespace zinc
