// Quotes text as one word of a POSIX shell, for commands that users copy.
#pragma once

#include <string>
#include <string_view>

namespace zinc {

std::string quoted_word(std::string_view text);  // always in quotes
std::string shell_word(std::string_view text);   // in quotes only if needed

}  // namespace zinc
