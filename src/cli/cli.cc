#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "backend/backend.h"
#include "base/cache_folder.h"
#include "base/nearest_name.h"
#include "base/version.h"
#include "cli/command.h"
#include "cli/foreign_words.h"
#include "cli/help_format.h"
#include "cli/hub_settings.h"
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "cli/split_hosts.h"
#include "cli/thinking_options.h"
#include "cli/usage_error.h"

namespace zinc {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;
constexpr int kExitInterrupted = 130;  // as if SIGINT had ended the program

// The parent of a command: the root for "run", the command "bench" for "bench serve", the group "debug" (created on
// first use) for "debug eval".
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

std::vector<std::string> long_options(const CLI::App& root, const std::string& command) {
  std::vector<std::string> names;
  for (const CLI::App* app : root.get_subcommands([&](const CLI::App* a) { return a->check_name(command); })) {
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back(name);
    }
  }
  return names;
}

Status run_command(const std::function<Status()>& command) {
  try {
    const Status status = command();
    return status.ok() ? flush_output() : status;
  } catch (const std::filesystem::filesystem_error& error) {  // thrown by calls without an error_code
    return fail(ErrorCode::io, "{}: {}", error.path1().string(), error.code().message());
  } catch (const std::system_error& error) {  // {fmt} throws if a stream cannot be written
    return fail(ErrorCode::io, "cannot write to standard output: {}", error.code().message());
  }
}

}  // namespace

std::string full_version() {
  return fmt::format("{}\nbackends: {} (default: {})", version_text(), backend_names(), default_backend().name);
}

void check_usage(CLI::App& app, std::function<Status()> check) {
  app.parse_complete_callback([check = std::move(check)] {
    if (const Status right = check(); !right.ok()) throw CLI::ValidationError(right.error().message);
  });
}

int run_cli(int argc, char** argv) {
  if (argc < 2) return run_command([] { return write_output(short_help()); }).ok() ? 0 : kExitFailure;
  if (const auto folder = cache_folder(); folder.ok()) set_cache_folder(folder.value());
  CLI::App app{"zinc: run language models on this machine", "zinc"};
  app.formatter(std::make_shared<HelpFormat>(help_width()));
  app.set_version_flag("-v,--version", full_version);
  app.require_subcommand(1);
  std::function<Status()> chosen;
  for (const Command* const* c = kCommands; *c; ++c) {
    const Command& command = **c;
    CLI::App* parent = parent_app(app, command.path);
    const size_t space = command.path.rfind(' ');
    const std::string name(command.path.substr(space == std::string_view::npos ? 0 : space + 1));
    CLI::App* sub = parent->add_subcommand(name, std::string(command.summary));
    if (!command.alias.empty()) sub->alias(std::string(command.alias));
    sub->callback([&chosen, run = command.declare(*sub)] {
      if (!chosen) chosen = run;  // the innermost is called first
    });
  }
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (const auto misread = find_misread_option(arguments, long_options(app, arguments.front()))) {
    print_stderr(misread_option_error(app, arguments.front(), *misread));
    return kExitUsage;
  }
  complete_think_option(arguments);
  std::ranges::reverse(arguments);  // CLI11 takes them from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    print_stderr(usage_error(app, error));
    return kExitUsage;
  }
  const Status status =
      run_command(is_split_over_hosts(app) ? [&chosen] { return run_split_over_hosts(chosen); } : chosen);
  if (status.ok()) return 0;
  print_stderr(fmt::format("zinc: {}", sanitize_line(status.error().message)));
  return status.error().code == ErrorCode::cancelled ? kExitInterrupted : kExitFailure;
}

}  // namespace zinc
