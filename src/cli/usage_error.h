// The one line for a command line that could not be parsed: the mistake in zinc's words, what was probably meant, and
// where the help is.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace zinc {

std::string usage_error(const CLI::App& root, const CLI::ParseError& error);
// For an option of another program (cli/foreign_words.h).
std::string foreign_option_error(const CLI::App& root, const std::string& command, const std::string& option);

}  // namespace zinc
