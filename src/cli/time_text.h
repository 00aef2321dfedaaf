// A duration for progress messages: "42 s", "3 min 5 s", "2 h 10 min", "days".
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

namespace zinc {

inline std::string time_text(double seconds) {
  if (seconds >= 360'000) return "days";
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s >= 3600) return fmt::format("{} h {} min", s / 3600, s % 3600 / 60);
  return s >= 60 ? fmt::format("{} min {} s", s / 60, s % 60) : fmt::format("{} s", s);
}

}  // namespace zinc
