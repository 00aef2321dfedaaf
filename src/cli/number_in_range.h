// Validator for numeric options. CLI::Range accepts "nan", which compares false with both ends, and reports a word as
// "not in range".
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <concepts>
#include <string>

namespace zinc {

template <class T>
CLI::Validator number_in_range(T low, T high) {
  return CLI::Validator(
      [=](std::string& text) {
        T number = {};
        if (CLI::detail::lexical_cast(text, number) && number >= low && number <= high) return std::string();
        return fmt::format("'{}' is not a {}number from {} to {}", text, std::integral<T> ? "whole " : "", low, high);
      },
      "");
}

}  // namespace zinc
