// The man page and the shell completions, generated from the CLI11 command tree, so that they always match the parser.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace zinc {

std::string man_page(const CLI::App& root);
std::string bash_completion(const CLI::App& root);
std::string zsh_completion(const CLI::App& root);
std::string fish_completion(const CLI::App& root);

}  // namespace zinc
