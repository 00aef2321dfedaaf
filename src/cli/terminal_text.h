// What a model wrote, made harmless for a terminal: no character in it can move the cursor, change colours or reorder a
// line. Newlines and tabs stay; other control characters show as pictures of themselves, invalid bytes as U+FFFD.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

std::string terminal_text(std::string_view text);
bool reorders_line(char32_t code);  // what comes after it stands elsewhere: bidirectional controls, other line ends

}  // namespace zinc
