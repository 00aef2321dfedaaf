// String formats of JSON Schema as regular expressions. Email and host names are limited well below the standard's
// maximum, so that they terminate and the usual `maxLength` (255) is always satisfied.
#pragma once

#include <string_view>

namespace zinc {

// Empty: an unknown format, which the standard treats as an annotation.
std::string_view pattern_of_format(std::string_view format);

}  // namespace zinc
