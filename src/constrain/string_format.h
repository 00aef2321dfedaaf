// The formats of strings that JSON schemas name, as regular expressions. Names of mail and hosts are bounded well below
// what may be, so that they come to an end and usual limits of length (255) say nothing more about them.
#pragma once

#include <string_view>

namespace zinc {

// Empty: unknown, and by the standard no more than a remark.
std::string_view pattern_of_format(std::string_view format);

}  // namespace zinc
