// The one line for a command line that could not be parsed: the mistake in zinc's words, what was probably meant, and
// where the help is.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace zinc {

// What a word that `app` does not know probably means, as half a sentence; empty: unknown. Never a command that
// deletes.
std::string suggestion_for(const CLI::App& app, const std::string& word);
std::string usage_error(const CLI::App& root, const CLI::ParseError& error);
// For an option that the parser would misread (cli/foreign_words.h).
std::string misread_option_error(const CLI::App& root, const std::string& command, const std::string& option);

}  // namespace zinc
