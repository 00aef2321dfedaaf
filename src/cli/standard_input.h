// Standard input as text. An open pipe without a writer (an inherited one in CI, for example) would block silently:
// after two seconds without a byte, a notice says what zinc waits for.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace zinc {

bool has_piped_input();  // standard input is open and not a terminal

// Everything up to the end of standard input. `notice` is printed to standard error if nothing arrives for two seconds.
Result<std::string> read_standard_input(std::string_view notice);

}  // namespace zinc
