// The escapes of a text literal: \n, \x41, \u00e9, \U0001f600 and so on, as Python reads them.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace zinc::jinja {

Result<std::string> unescape_literal(std::string_view literal);  // what stands between the quotes

}  // namespace zinc::jinja
