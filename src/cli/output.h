// Standard output and standard error of the program, without exceptions. A full disk or a closed stream is an Error:
// an answer that nobody got must not look like success.
#pragma once

#include <string_view>

#include "base/result.h"

namespace zinc {

Status write_output(std::string_view text);  // to standard output, at once
Status flush_output();                       // fails if anything printed before could not be written
void note(std::string_view line);            // a line on standard error; whether anyone reads it does not matter

}  // namespace zinc
