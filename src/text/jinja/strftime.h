// strftime for strftime_now(): English names, no locale, no time zone; the same on every system.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace zinc::jinja {

using LocalTime = std::chrono::local_seconds;
constexpr size_t kMaxTimeFormatBytes = 1000;

std::string strftime(LocalTime time, std::string_view format);

}  // namespace zinc::jinja
