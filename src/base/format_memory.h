// "7.45 GB", "512 MB": a number of bytes in decimal units, for messages and reports.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>

namespace zinc {

inline std::string format_memory(size_t n_bytes) {
  const double n = static_cast<double>(n_bytes);
  if (n >= 1e9) return fmt::format("{:.2f} GB", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.0f} MB", n / 1e6);
  return n >= 1e3 ? fmt::format("{:.0f} kB", n / 1e3) : fmt::format("{} bytes", n_bytes);
}

}  // namespace zinc
