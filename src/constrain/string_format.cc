#include "constrain/string_format.h"

#include <string>

namespace zinc {
namespace {

const std::string kDate =
    R"((?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])))"
    R"(|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29))";
const std::string kTime = R"((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d))";
const std::string kByte = R"((?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d))";
const std::string kLabel = R"([A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?)";
const std::string kGroup = "[0-9a-fA-F]{1,4}";
const std::string kDays = "(?:N(?:Y(?:NM(?:ND)?)?|M(?:ND)?|D))", kHours = "T(?:N(?:H(?:NM(?:NS)?)?|M(?:NS)?|S))";

// Replaces every `name` in the template.
std::string substitute(std::string_view pattern_template, char name, std::string_view replacement) {
  std::string out;
  for (const char c : pattern_template) out += c == name ? std::string(replacement) : std::string(1, c);
  return out;
}

struct Format {
  std::string_view name;
  std::string pattern;
};
const Format kFormats[] = {
    {"date", "^" + kDate + "$"},
    {"time", "^" + kTime + "$"},
    {"date-time", "^" + kDate + "T" + kTime + "$"},
    {"uuid", "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"},
    {"email",
     "^[A-Za-z0-9_+-]{1,30}(?:\\.[A-Za-z0-9_+-]{1,30})?@" + kLabel + "(?:\\." + kLabel + "){0,2}\\.[A-Za-z]{2,20}$"},
    {"hostname", "^" + kLabel + "(?:\\." + kLabel + "){0,5}$"},
    {"duration", substitute("^P(?:" + kDays + "(?:" + kHours + ")?|" + kHours + "|NW)$", 'N', "\\d{1,4}")},
    {"ipv6", substitute("^(?:(?:G:){7}G|(?:G:){1,7}:|(?:G:){1,6}:G|(?:G:){1,5}(?::G){1,2}|(?:G:){1,4}(?::G){1,3}|"
                        "(?:G:){1,3}(?::G){1,4}|(?:G:){1,2}(?::G){1,5}|G:(?::G){1,6}|:(?:(?::G){1,7}|:))$",
                        'G', kGroup)},
    {"ipv4", "^" + kByte + "(?:\\." + kByte + "){3}$"}};

}  // namespace

std::string_view pattern_of_format(std::string_view format) {
  for (const Format& known : kFormats) {
    if (known.name == format) return known.pattern;
  }
  return {};
}

}  // namespace zinc
