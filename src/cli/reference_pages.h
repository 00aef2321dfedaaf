// The man page and the shells' completions, written from the tree of commands and options that parses them: they
// cannot say anything else than the program does.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace zinc {

std::string man_page(const CLI::App& root);
std::string bash_completion(const CLI::App& root);
std::string zsh_completion(const CLI::App& root);
std::string fish_completion(const CLI::App& root);

}  // namespace zinc
