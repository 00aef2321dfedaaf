// Makes a message safe for one line of a terminal: control characters (C0, DEL and C1) become \n, \t or \xNN, invalid
// UTF-8 becomes U+FFFD. The last line of defense: paths and library messages may contain anything. Quotes and
// backslashes stay: quoted values were escaped where they were inserted.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

std::string sanitize_line(std::string_view message);

}  // namespace zinc
