#include "text/unicode_case.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "base/utf8.h"

namespace zinc {
namespace {

struct Range {
  char32_t first, last;
};

// Every `step`-th character of first..last maps to itself plus `delta`.
struct CaseRun {
  char32_t first, last;
  int step, delta;
};

struct CaseExpansion {
  char32_t code;
  char32_t mapped[3];  // zero-terminated if shorter
};

#include "text/unicode_case_data.inc"

bool in_ranges(std::span<const Range> ranges, char32_t code) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code,
                                      [](char32_t wanted, const Range& range) { return wanted < range.first; });
  return after != ranges.begin() && code <= std::prev(after)->last;
}

struct CaseTable {
  std::span<const CaseRun> runs;
  std::span<const CaseExpansion> expansions;
};

CaseTable table_of(Case wanted) {
  switch (wanted) {
    case Case::upper:
      return {kUpperRuns, kUpperExpansions};
    case Case::lower:
      return {kLowerRuns, kLowerExpansions};
    case Case::title:
      break;
  }
  return {kTitleRuns, kTitleExpansions};
}

char32_t map_one(std::span<const CaseRun> runs, char32_t code) {
  const auto after = std::upper_bound(runs.begin(), runs.end(), code,
                                      [](char32_t wanted, const CaseRun& run) { return wanted < run.first; });
  if (after == runs.begin()) return code;
  const CaseRun& run = *std::prev(after);
  if (code <= run.last && (code - run.first) % static_cast<char32_t>(run.step) == 0) {
    return static_cast<char32_t>(static_cast<int>(code) + run.delta);
  }
  return code;
}

char ascii_in_case(char32_t code, Case wanted) {
  const char c = static_cast<char>(code);
  if (wanted == Case::lower) return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
}

}  // namespace

void append_in_case(std::string& out, char32_t code, Case wanted) {
  if (code < 0x80) {
    out.push_back(ascii_in_case(code, wanted));
    return;
  }
  const CaseTable table = table_of(wanted);
  const auto found = std::lower_bound(table.expansions.begin(), table.expansions.end(), code,
                                      [](const CaseExpansion& row, char32_t c) { return row.code < c; });
  if (found == table.expansions.end() || found->code != code) {
    append_utf8(out, map_one(table.runs, code));
    return;
  }
  for (const char32_t mapped : found->mapped) {
    if (mapped != 0) append_utf8(out, mapped);
  }
}

bool is_alpha(char32_t code) { return in_ranges(kAlpha, code); }
bool is_decimal(char32_t code) { return in_ranges(kDecimal, code); }
bool is_digit(char32_t code) { return in_ranges(kDigit, code); }
bool is_numeric(char32_t code) { return in_ranges(kNumeric, code); }
bool is_upper(char32_t code) { return in_ranges(kUppercase, code); }
bool is_lower(char32_t code) { return in_ranges(kLowercase, code); }
bool is_cased(char32_t code) { return in_ranges(kCased, code); }
bool is_case_ignorable(char32_t code) { return in_ranges(kCaseIgnorable, code); }
bool is_printable(char32_t code) { return code < 0x7F ? code >= 0x20 : in_ranges(kPrintable, code); }

bool is_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= 9 && code <= 13) || (code >= 28 && code <= 31);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

}  // namespace zinc
