#include "text/jinja/strftime.h"

#include <fmt/core.h>

#include <array>

namespace zinc::jinja {
namespace {

using std::chrono::days;

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

struct Fields {
  int year, year_of_century, month, day, hour, hour12, minute, second;
  int weekday, iso_weekday;  // Sunday is 0, or 7
  int day_of_year, week_from_sunday, week_from_monday;
};

Fields split(LocalTime time) {
  const auto midnight = std::chrono::floor<days>(time);
  const std::chrono::year_month_day date(midnight);
  const std::chrono::hh_mm_ss clock(time - midnight);
  Fields f{};
  f.year = static_cast<int>(date.year());
  f.year_of_century = ((f.year % 100) + 100) % 100;
  f.month = static_cast<int>(static_cast<unsigned>(date.month()));
  f.day = static_cast<int>(static_cast<unsigned>(date.day()));
  f.hour = static_cast<int>(clock.hours().count());
  f.hour12 = f.hour % 12 == 0 ? 12 : f.hour % 12;
  f.minute = static_cast<int>(clock.minutes().count());
  f.second = static_cast<int>(clock.seconds().count());
  f.weekday = static_cast<int>(std::chrono::weekday(midnight).c_encoding());
  f.iso_weekday = f.weekday == 0 ? 7 : f.weekday;
  f.day_of_year = static_cast<int>((midnight - std::chrono::local_days(date.year() / 1 / 1)).count()) + 1;
  f.week_from_sunday = (f.day_of_year + 6 - f.weekday) / 7;
  f.week_from_monday = (f.day_of_year + 7 - f.iso_weekday) / 7;
  return f;
}

struct Number {
  char letter;
  int Fields::*field;
  int n_digits;
  char fill;
};
constexpr Number kNumbers[] = {
    {'Y', &Fields::year, 4, '0'},
    {'y', &Fields::year_of_century, 2, '0'},
    {'m', &Fields::month, 2, '0'},
    {'d', &Fields::day, 2, '0'},
    {'e', &Fields::day, 2, ' '},
    {'H', &Fields::hour, 2, '0'},
    {'I', &Fields::hour12, 2, '0'},
    {'M', &Fields::minute, 2, '0'},
    {'S', &Fields::second, 2, '0'},
    {'j', &Fields::day_of_year, 3, '0'},
    {'w', &Fields::weekday, 1, '0'},
    {'u', &Fields::iso_weekday, 1, '0'},
    {'U', &Fields::week_from_sunday, 2, '0'},
    {'W', &Fields::week_from_monday, 2, '0'},
};

struct CompositeFormat {
  char letter;
  std::string_view format;
};
constexpr CompositeFormat kCompositeFormats[] = {
    {'F', "%Y-%m-%d"},
    {'T', "%H:%M:%S"},
    {'X', "%H:%M:%S"},
    {'D', "%m/%d/%y"},
    {'x', "%m/%d/%y"},
    {'R', "%H:%M"},
    {'c', "%a %b %e %H:%M:%S %Y"},
};

// `no_padding`: "%-d", a number without leading zeros.
std::string expand(LocalTime time, char letter, bool no_padding) {
  const Fields fields = split(time);
  for (const Number& number : kNumbers) {
    if (number.letter != letter) continue;
    const std::string digits = fmt::format("{}", fields.*number.field);
    const size_t n_wanted = no_padding ? 0 : static_cast<size_t>(number.n_digits);
    return digits.size() < n_wanted ? std::string(n_wanted - digits.size(), number.fill) + digits : digits;
  }
  for (const CompositeFormat& composite : kCompositeFormats) {
    if (composite.letter == letter) return strftime(time, composite.format);
  }
  const std::string_view month = kMonths[static_cast<size_t>(fields.month - 1)];
  const std::string_view weekday = kDays[static_cast<size_t>(fields.weekday)];
  switch (letter) {
    case 'B':
      return std::string(month);
    case 'b':
    case 'h':
      return std::string(month.substr(0, 3));
    case 'A':
      return std::string(weekday);
    case 'a':
      return std::string(weekday.substr(0, 3));
    case 'p':
      return fields.hour < 12 ? "AM" : "PM";
    case 'f':
      return "000000";  // microseconds are not available
    case 'Z':
    case 'z':
      return "";  // no time zone
    case '%':
      return "%";
    default:
      return {'%', letter};
  }
}

}  // namespace

std::string strftime(LocalTime time, std::string_view format) {
  std::string text;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      text.push_back(format[i]);
      continue;
    }
    const bool no_padding = format[i + 1] == '-' && i + 2 < format.size();
    i += no_padding ? 2 : 1;
    text += expand(time, format[i], no_padding);
  }
  return text;
}

}  // namespace zinc::jinja
