// Escape sequences of a string literal, as in Python: \n, \x41, \u00e9, \U0001f600.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace zinc::jinja {

Result<std::string> unescape_literal(std::string_view literal);  // without the quotes

}  // namespace zinc::jinja
