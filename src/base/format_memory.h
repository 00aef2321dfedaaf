// "7.45 GiB", "512 MiB": a memory size, for messages.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>

namespace zinc {

inline std::string format_memory(size_t n_bytes) {
  const double n = static_cast<double>(n_bytes);
  if (n >= 0x1p30) return fmt::format("{:.2f} GiB", n / 0x1p30);
  if (n >= 0x1p20) return fmt::format("{:.0f} MiB", n / 0x1p20);
  return n >= 0x1p10 ? fmt::format("{:.0f} KiB", n / 0x1p10) : fmt::format("{} bytes", n_bytes);
}

}  // namespace zinc
