// "1 thread", "2 threads": a number of things, for people.
#pragma once

#include <fmt/core.h>

#include <concepts>
#include <string>
#include <string_view>

namespace zinc {

std::string counted(std::integral auto n, std::string_view thing) {
  return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s");
}

}  // namespace zinc
