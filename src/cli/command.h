// One record per command: src/cli/command/<stem>.cc defines `k_command_<stem>`, registered by the folder listing.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <string_view>

#include "base/result.h"

namespace zinc {

struct Command {
  std::string_view path;     // words as typed: "run", "debug eval"
  std::string_view summary;  // one line for --help
  // Declares options on `app` and returns the function that runs after parsing. An Error becomes one line on stderr and
  // exit code 1 (130 if the code is `cancelled`); wrong usage, found by CLI11 or check_usage, exits with 2.
  std::function<Status()> (*declare)(CLI::App& app);
  std::string_view alias = {};  // another word for it
};

extern const Command* const kCommands[];  // every command, ended by nullptr

// For usage errors that CLI11 cannot detect: `check` is called after the options of `app` are parsed, before it runs.
void check_usage(CLI::App& app, std::function<Status()> check);

std::string full_version();  // version, commit and backends

// Parses the arguments and runs the command. Returns the process's exit code.
int run_cli(int argc, char** argv);

}  // namespace zinc
