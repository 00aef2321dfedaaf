#include "cli/check/check_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/pluralize.h"
#include "base/utf8.h"
#include "base/version.h"
#include "cli/sanitize_line.h"
#include "cli/word_wrap.h"

namespace zinc {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"skip", "ok", "warn", "fail"};
constexpr std::array<std::string_view, 4> kWords = {"SKIP", "OK  ", "WARN", "FAIL"};
constexpr std::array<std::string_view, 4> kColors = {"\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m"};
constexpr std::array<std::string_view, 4> kVerdicts = {"", "ready", "ready, with warnings", "not ready"};

json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value() : json::value(json::string(replace_invalid_utf8(text)));
}

}  // namespace

std::string_view check_status_name(CheckStatus status) { return kNames[static_cast<size_t>(status)]; }

CheckStatus CheckReport::verdict() const {
  CheckStatus worst = CheckStatus::ok;  // also if all lines are skipped
  for (const CheckLine& line : lines_) worst = std::max(worst, line.status);
  return worst;
}

size_t CheckReport::count(CheckStatus status) const {
  return static_cast<size_t>(std::ranges::count(lines_, status, &CheckLine::status));
}

json::object CheckReport::to_json() const {
  json::object counts;
  for (size_t i = 0; i < kNames.size(); ++i) counts[kNames[i]] = count(static_cast<CheckStatus>(i));
  json::array lines;
  for (const CheckLine& line : lines_) {
    lines.push_back({{"section", line.section},
                     {"name", line.name},
                     {"status", check_status_name(line.status)},
                     {"message", replace_invalid_utf8(line.message)},
                     {"hint", text_or_null(line.hint)}});
  }
  return {{"version", version_text()},
          {"verdict", check_status_name(verdict())},
          {"counts", counts},
          {"checks", std::move(lines)},
          {"machine", machine},
          {"backends", backends},
          {"model", model.empty() ? json::value() : json::value(model)}};
}

std::string CheckReport::to_text(bool has_colors, int width) const {
  constexpr int kMessageColumn = 20, kNarrowColumn = 7, kNarrow = 60;
  const int indent = width < kNarrow ? kNarrowColumn : kMessageColumn;
  std::string text, section;
  const auto word = [has_colors](CheckStatus status) {
    const size_t i = static_cast<size_t>(status);
    return has_colors ? fmt::format("{}{}\x1b[0m", kColors[i], kWords[i]) : std::string(kWords[i]);
  };
  for (const CheckLine& line : lines_) {
    if (line.section != section) text += fmt::format("{}{}\n", section.empty() ? "" : "\n", line.section);
    section = line.section;
    text += wrap_words(fmt::format("  {} {:<12} {}", word(line.status), line.name, sanitize_line(line.message)), width,
                       indent) +
            "\n";
    if (line.hint.empty()) continue;
    text +=
        wrap_words(fmt::format("{:{}}-> {}", "", kMessageColumn, sanitize_line(line.hint)), width, indent + 3) + "\n";
  }
  return text + wrap_words(fmt::format("\n{} {}: {} ok, {}, {} failed, {} skipped\n", word(verdict()),
                                       kVerdicts[static_cast<size_t>(verdict())], count(CheckStatus::ok),
                                       pluralize(count(CheckStatus::warn), "warning"), count(CheckStatus::fail),
                                       count(CheckStatus::skip)),
                           width);
}

}  // namespace zinc
