#include <fmt/core.h>

#include <cstdio>
#include <map>
#include <string>

#include "cli/command.h"
#include "cli/one_line.h"
#include "cli/version.h"

namespace zinc {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

// The app a command hangs on: the root for "run", the group "debug" (made when first needed) for "debug eval".
CLI::App* parent_app(CLI::App& root, std::string_view path, std::map<std::string, CLI::App*>& groups) {
  const size_t space = path.find(' ');
  if (space == std::string_view::npos) return &root;
  const std::string name(path.substr(0, space));
  auto [entry, is_new] = groups.try_emplace(name, nullptr);
  if (is_new) {
    entry->second = root.add_subcommand(name, "tools for tests and developers");
    entry->second->require_subcommand(1);
  }
  return entry->second;
}

}  // namespace

int run_cli(int argc, char** argv) {
  CLI::App app{"zinc: a GGUF file in, tokens out", "zinc"};
  app.set_version_flag("--version", version_text());
  app.require_subcommand(1);
  std::map<std::string, CLI::App*> groups;
  std::function<Status()> chosen;
  for (const Command* const* c = kCommands; *c; ++c) {
    const Command& command = **c;
    CLI::App* parent = parent_app(app, command.path, groups);
    const size_t space = command.path.rfind(' ');
    const std::string name(command.path.substr(space == std::string_view::npos ? 0 : space + 1));
    CLI::App* sub = parent->add_subcommand(name, std::string(command.summary));
    sub->callback([&chosen, run = command.declare(*sub)] { chosen = run; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  const Status status = chosen();
  if (status.ok()) return 0;
  fmt::print(stderr, "zinc: {}\n", one_line(status.error().message));
  return kExitFailure;
}

}  // namespace zinc
