// Numbers as options. CLI::Range takes "nan", which compares false with both ends, and calls a word "not in range".
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>

#include <concepts>
#include <string>

namespace zinc {

template <class T>
CLI::Validator number_between(T low, T high) {
  return CLI::Validator(
      [=](std::string& text) {
        T number = {};
        if (CLI::detail::lexical_cast(text, number) && number >= low && number <= high) return std::string();
        return fmt::format("'{}' is no {}number from {} to {}", text, std::integral<T> ? "whole " : "", low, high);
      },
      "");
}

}  // namespace zinc
