// Standard output and standard error without exceptions. A full disk or a closed stream is an Error: lost output must
// not look like success.
#pragma once

#include <string_view>

#include "base/result.h"

namespace zinc {

Status write_output(std::string_view text);  // to standard output, flushed
Status flush_output();                       // fails if any earlier output could not be written
// A line on standard error, wrapped at blanks on a terminal; failures are ignored.
void print_stderr(std::string_view line);
void write_stderr(std::string_view line);  // the same, never wrapped: for logs

}  // namespace zinc
