#include "cli/display_width.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "base/utf8.h"

namespace zinc {
namespace {

struct CodeRange {
  char32_t first, last;
};

// Unicode 15: the blocks with East_Asian_Width W or F, and the emoji that are shown as pictures by default.
constexpr CodeRange kWide[] = {
    {0x1100, 0x115F},   {0x231A, 0x231B},   {0x23E9, 0x23EC},   {0x2614, 0x2615},   {0x2648, 0x2653},
    {0x26A1, 0x26A1},   {0x26BD, 0x26BE},   {0x26C4, 0x26C5},   {0x2705, 0x2705},   {0x270A, 0x270B},
    {0x2728, 0x2728},   {0x274C, 0x274C},   {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},
    {0x2B50, 0x2B50},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xA960, 0xA97F},   {0xAC00, 0xD7A3},
    {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F},
    {0x1F680, 0x1F6FF}, {0x1F7E0, 0x1F7EB}, {0x1F900, 0x1F9FF}, {0x1FA70, 0x1FAFF}, {0x20000, 0x3FFFD}};
// Combining marks, joiners and variation selectors.
constexpr CodeRange kZero[] = {{0x0300, 0x036F}, {0x0483, 0x0489}, {0x0591, 0x05BD}, {0x0610, 0x061A},
                               {0x064B, 0x065F}, {0x093A, 0x093A}, {0x093C, 0x093C}, {0x0941, 0x0948},
                               {0x094D, 0x094D}, {0x0E31, 0x0E31}, {0x0E34, 0x0E3A}, {0x0E47, 0x0E4E},
                               {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x200B, 0x200F}, {0x20D0, 0x20FF},
                               {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}, {0xFEFF, 0xFEFF}, {0xE0100, 0xE01EF}};

template <size_t n>
bool is_in(const CodeRange (&ranges)[n], char32_t code) {
  const auto* const after =
      std::upper_bound(std::begin(ranges), std::end(ranges), code,
                       [](char32_t wanted, const CodeRange& range) { return wanted < range.first; });
  return after != std::begin(ranges) && code <= std::prev(after)->last;
}

}  // namespace

int display_width(char32_t code) {
  constexpr char32_t kFirstUnusual = 0x0300;
  if (code < kFirstUnusual) return 1;
  if (is_in(kZero, code)) return 0;
  return is_in(kWide, code) ? 2 : 1;
}

int display_width(std::string_view text) {
  int n_columns = 0;
  while (!text.empty()) {
    if (text.starts_with("\x1b[")) {
      text.remove_prefix(std::min(text.find('m'), text.size() - 1) + 1);
      continue;
    }
    const Utf8Char c = next_utf8(text);
    text.remove_prefix(static_cast<size_t>(c.n_bytes));
    n_columns += display_width(c.code);
  }
  return n_columns;
}

}  // namespace zinc
