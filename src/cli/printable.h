// Text from a file or a user, made safe to show on a terminal: one line, no control characters, valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

// Control characters (C0, DEL and C1) become \n, \t or \xNN; invalid UTF-8 becomes U+FFFD. A backslash stays as it is:
// this is for reading, not for undoing.
std::string printable(std::string_view text);

}  // namespace zinc
