// `zinc version`: the same as `zinc --version`.
#include "cli/command.h"
#include "cli/output.h"

namespace zinc::command_version {
namespace {

std::function<Status()> declare(CLI::App&) {
  return [] { return write_output(full_version() + "\n"); };
}

}  // namespace

extern const Command k_command_version = {
    .path = "version", .summary = "print the version and the backends", .declare = declare};

}  // namespace zinc::command_version
