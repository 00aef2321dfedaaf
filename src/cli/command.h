// One record per command; a file src/cli/command/<stem>.cc defines `k_command_<stem>` and the folder listing registers
// it.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string_view>

#include "base/result.h"

namespace zinc {

struct Command {
  std::string_view path;     // words as typed: "run", "debug eval"
  std::string_view summary;  // one line for --help
  // Declares options on `app` and returns what runs once they are parsed. An Error becomes one line on stderr and
  // exit code 1 (130 if the code is `cancelled`); wrong usage is found by CLI11 and check_usage, and exits with 2.
  std::function<Status()> (*declare)(CLI::App& app);
};

extern const Command* const kCommands[];  // every command, ended by nullptr

// Wrong usage that CLI11 does not see: `check` is asked once the options of `app` are parsed, before anything runs.
void check_usage(CLI::App& app, std::function<Status()> check);

// Parses the arguments and runs the command. Returns the process's exit code.
int run_cli(int argc, char** argv);

}  // namespace zinc
