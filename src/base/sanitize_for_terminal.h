// Sanitizes untrusted text (file keys, names, values) for one line on a terminal or in an error message: escapes
// control characters, quotes and invalid UTF-8, and truncates long text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zinc {

constexpr size_t kMaxShownBytes = 120;

// "abc\n" with escapes but without quotes; at most about `max_bytes` bytes of `text` are shown, then "... (N bytes)".
std::string sanitize_for_terminal(std::string_view text, size_t max_bytes = kMaxShownBytes);

// Whether a terminal interprets the character (control codes, bidirectional overrides) instead of showing it.
bool is_control(char32_t code);

}  // namespace zinc
