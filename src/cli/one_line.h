// A whole message for people, kept to one line of a terminal: control characters (C0, DEL and C1) become \n, \t or
// \xNN, invalid UTF-8 becomes U+FFFD. The last guard: a path or a piece of a library's message may hold anything.
// Quotes and backslashes stay, as values quoted in messages were escaped where they were quoted.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

std::string one_line(std::string_view message);

}  // namespace zinc
