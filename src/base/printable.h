// Text from outside (file keys, names, values) made safe for one line on a terminal or in an error message: control
// characters, quotes and invalid UTF-8 are escaped, long text is cut and says so.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zinc {

constexpr size_t kPrintableBytes = 120;

// "abc\n" with escapes but without quotes; at most about `max_bytes` bytes of `text` are shown, then "... (N bytes)".
std::string printable(std::string_view text, size_t max_bytes = kPrintableBytes);

// Whether a character steers a terminal or reorders a line instead of being shown.
bool is_control(char32_t code);

}  // namespace zinc
