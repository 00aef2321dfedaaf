// "1 thread", "2 threads": a count and a noun, for messages.
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <string>
#include <string_view>

namespace zinc {

std::string pluralize(std::integral auto n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

}  // namespace zinc
