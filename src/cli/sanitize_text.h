// Makes model output safe for a terminal: it cannot move the cursor, change colors or reorder a line. Newlines and
// tabs stay; other control characters become their Unicode control pictures, invalid bytes U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

std::string sanitize_text(std::string_view text);
bool reorders_line(char32_t code);  // bidirectional controls and Unicode line separators

}  // namespace zinc
