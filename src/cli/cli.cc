#include <fmt/core.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "backend/backend.h"
#include "base/cache_folder.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/help_format.h"
#include "cli/hub_settings.h"
#include "cli/one_line.h"
#include "cli/output.h"
#include "hub/nearest_name.h"

namespace zinc {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;  // as if SIGINT had ended the program

// The app a command hangs on: the root for "run", the command "bench" for "bench serve", the group "debug" (made when
// first needed) for "debug eval".
CLI::App* parent_app(CLI::App& root, std::string_view path) {
  const size_t space = path.find(' ');
  if (space == std::string_view::npos) return &root;
  const std::string name(path.substr(0, space));
  const auto known = root.get_subcommands([&](CLI::App* app) { return app->get_name() == name; });
  if (!known.empty()) return known.front();
  CLI::App* const group = root.add_subcommand(name, "tools for tests and developers");
  group->require_subcommand(1);
  return group;
}

Status run_command(const std::function<Status()>& command) {
  try {
    const Status status = command();
    return status.ok() ? flush_output() : status;
  } catch (
      const std::filesystem::filesystem_error& error) {  // a call without an error_code, on a file system that fails
    return fail(ErrorCode::io, "{}: {}", error.path1().string(), error.code().message());
  } catch (const std::system_error& error) {  // {fmt} throws where a stream does not take what it prints
    return fail(ErrorCode::io, "standard output could not be written: {}", error.code().message());
  }
}

// The innermost command the words named, for pointing at its help.
const CLI::App& named_app(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : named_app(*chosen.front());
}

// What was probably meant instead of a word that `app` does not know.
std::string suggestion(const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_name().empty()) names.push_back(command->get_name());
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::erase_if(names, [&](const std::string& name) { return name.starts_with('-') != word.starts_with('-'); });
  const std::optional<std::string> meant = nearest_name(word.substr(0, word.find('=')), names);
  return meant ? fmt::format("; did you mean {}?", *meant) : "";
}

// One line that says what was wrong and where the right usage is.
std::string usage_error(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App& app = named_app(root);
  std::string path = app.get_name();
  for (const CLI::App* a = app.get_parent(); a; a = a->get_parent()) path = a->get_name() + " " + path;
  std::string what = error.what();
  const std::vector<std::string> unknown = root.remaining(true);
  if (app.get_require_subcommand_min() > 0) {  // a group, and none of its commands followed
    what = unknown.empty() ? "a command is missing" : fmt::format("'{}' is no command", unknown.front());
  }
  if (!unknown.empty()) what += suggestion(app, unknown.front());
  return fmt::format("zinc: {}; `{} --help` lists what is possible", one_line(what), path);
}

}  // namespace

int run_cli(int argc, char** argv) {
  if (const auto folder = cache_folder(); folder.ok()) keep_caches_in(folder.value());
  CLI::App app{"zinc: runs language models on this machine", "zinc"};
  app.formatter(std::make_shared<HelpFormat>());
  app.set_version_flag("--version", [] {
    return fmt::format("{}\nbackends: {} (here: {})", version_text(), backend_names(), default_backend().name);
  });
  app.require_subcommand(1);
  std::function<Status()> chosen;
  for (const Command* const* c = kCommands; *c; ++c) {
    const Command& command = **c;
    CLI::App* parent = parent_app(app, command.path);
    const size_t space = command.path.rfind(' ');
    const std::string name(command.path.substr(space == std::string_view::npos ? 0 : space + 1));
    CLI::App* sub = parent->add_subcommand(name, std::string(command.summary));
    sub->callback([&chosen, run = command.declare(*sub)] {
      if (!chosen) chosen = run;  // the innermost is called first
    });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    note(usage_error(app, error));
    return kExitUsage;
  }
  const Status status = run_command(chosen);
  if (status.ok()) return 0;
  note(fmt::format("zinc: {}", one_line(status.error().message)));
  return status.error().code == ErrorCode::cancelled ? kExitInterrupted : kExitFailure;
}

}  // namespace zinc
