#include "text/jinja/clock.h"

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
  int year, month, day, hour, minute, second, weekday, day_of_year;  // month and day from 1, weekday from Sunday = 0
};

Fields split(LocalTime time) {
  const auto midnight = std::chrono::floor<days>(time);
  const std::chrono::year_month_day date(midnight);
  const std::chrono::hh_mm_ss clock(time - midnight);
  const auto new_year = std::chrono::local_days(date.year() / std::chrono::January / 1);
  return {static_cast<int>(date.year()),
          static_cast<int>(static_cast<unsigned>(date.month())),
          static_cast<int>(static_cast<unsigned>(date.day())),
          static_cast<int>(clock.hours().count()),
          static_cast<int>(clock.minutes().count()),
          static_cast<int>(clock.seconds().count()),
          static_cast<int>(std::chrono::weekday(midnight).c_encoding()),
          static_cast<int>((midnight - new_year).count())};
}

// A number of `width` digits; with "%-d" none are added.
std::string number(int value, int width, bool is_bare) { return fmt::format("{:0{}}", value, is_bare ? 1 : width); }

std::string expand(LocalTime time, char letter, bool is_bare) {
  const Fields f = split(time);
  const int hour12 = f.hour % 12 == 0 ? 12 : f.hour % 12;
  const std::string_view month = kMonths[static_cast<size_t>(f.month - 1)];
  const std::string_view weekday = kDays[static_cast<size_t>(f.weekday)];
  switch (letter) {
    case 'Y':
      return number(f.year, 4, is_bare);
    case 'y':
      return number(((f.year % 100) + 100) % 100, 2, is_bare);
    case 'm':
      return number(f.month, 2, is_bare);
    case 'd':
      return number(f.day, 2, is_bare);
    case 'e':
      return is_bare ? number(f.day, 1, true) : fmt::format("{:2}", f.day);
    case 'H':
      return number(f.hour, 2, is_bare);
    case 'I':
      return number(hour12, 2, is_bare);
    case 'M':
      return number(f.minute, 2, is_bare);
    case 'S':
      return number(f.second, 2, is_bare);
    case 'f':
      return "000000";
    case 'j':
      return number(f.day_of_year + 1, 3, is_bare);
    case 'U':
      return number((f.day_of_year + 7 - f.weekday) / 7, 2, is_bare);
    case 'W':
      return number((f.day_of_year + 7 - (f.weekday + 6) % 7) / 7, 2, is_bare);
    case 'w':
      return fmt::format("{}", f.weekday);
    case 'u':
      return fmt::format("{}", f.weekday == 0 ? 7 : f.weekday);
    case 'p':
      return f.hour < 12 ? "AM" : "PM";
    case 'B':
      return std::string(month);
    case 'b':
    case 'h':
      return std::string(month.substr(0, 3));
    case 'A':
      return std::string(weekday);
    case 'a':
      return std::string(weekday.substr(0, 3));
    case 'F':
      return format_time(time, "%Y-%m-%d");
    case 'T':
    case 'X':
      return format_time(time, "%H:%M:%S");
    case 'D':
    case 'x':
      return format_time(time, "%m/%d/%y");
    case 'R':
      return format_time(time, "%H:%M");
    case 'c':
      return format_time(time, "%a %b %e %H:%M:%S %Y");
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case '%':
      return "%";
    case 'Z':
    case 'z':
      return "";
    default:
      return {'%', letter};
  }
}

}  // namespace

std::string format_time(LocalTime time, std::string_view format) {
  std::string text;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      text.push_back(format[i]);
      continue;
    }
    const bool is_bare = format[i + 1] == '-' && i + 2 < format.size();
    i += is_bare ? 2 : 1;
    text += expand(time, format[i], is_bare);
  }
  return text;
}

}  // namespace zinc::jinja
