#include <fmt/core.h>

#include <algorithm>
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
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "cli/thinking_options.h"
#include "hub/nearest_name.h"

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

Status run_command(const std::function<Status()>& command) {
  try {
    const Status status = command();
    return status.ok() ? flush_output() : status;
  } catch (
      const std::filesystem::filesystem_error& error) {  // a call without an error_code, on a file system that fails
    return fail(ErrorCode::io, "{}: {}", error.path1().string(), error.code().message());
  } catch (const std::system_error& error) {  // {fmt} throws if a stream cannot be written
    return fail(ErrorCode::io, "standard output could not be written: {}", error.code().message());
  }
}

// The innermost command on the command line: the error points to its help.
const CLI::App& named_app(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : named_app(*chosen.front());
}

// Spellings of other programs, and zinc's spelling.
struct Suggestion {
  std::string_view command, word, replacement;
};
constexpr Suggestion kSuggestions[] = {{"zinc", "ls", "zinc list"},
                                       {"zinc", "model", "zinc list"},
                                       {"zinc", "models", "zinc list"},
                                       {"zinc", "version", "zinc --version"},
                                       {"zinc", "-v", "zinc --version"},
                                       {"zinc chat", "-m", "zinc chat MODEL"},
                                       {"zinc run", "-m", "zinc run MODEL 'PROMPT'"},
                                       {"zinc run", "-p", "zinc run MODEL 'PROMPT'"},
                                       {"zinc serve", "-m", "zinc serve MODEL"}};

// The likely replacement for a word that `app`, at `path`, does not know.
std::optional<std::string> suggestion_for(const CLI::App& app, const std::string& path, const std::string& word) {
  for (const Suggestion& suggestion : kSuggestions) {
    if (suggestion.command == path && suggestion.word == word) return std::string(suggestion.replacement);
  }
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::erase_if(names, [&](const std::string& name) { return name.starts_with('-') != word.starts_with('-'); });
  return nearest_name(word.substr(0, word.find('=')), names);
}

// One line: the mistake, and where to find the correct usage.
std::string usage_error(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App& app = root.remaining().empty() ? named_app(root) : root;  // else a word before the command
  std::string path = app.get_name();
  for (const CLI::App* a = app.get_parent(); a; a = a->get_parent()) path = a->get_name() + " " + path;
  // An unknown option first: the word after it would be reported as an unexpected argument.
  std::vector<std::string> unknown = root.remaining(true);
  std::stable_partition(unknown.begin(), unknown.end(), [](const std::string& word) { return word.starts_with('-'); });
  const bool is_group = app.get_require_subcommand_min() > 0;
  std::string what = is_group ? "a command is missing" : sanitize_line(error.what()), hint;
  if (!unknown.empty()) {
    const std::string& word = unknown.front();
    const bool is_option = word.starts_with('-');
    what = fmt::format("{} '{}'",
                       is_option  ? "unknown option"
                       : is_group ? "unknown command"
                                  : "unexpected argument",
                       sanitize_line(word));
    if (const auto suggestion = suggestion_for(app, path, word)) hint = fmt::format("did you mean `{}`? ", *suggestion);
  }
  return fmt::format("zinc: {}; {}see `{} --help`", what, hint, path);
}

}  // namespace

void check_usage(CLI::App& app, std::function<Status()> check) {
  app.parse_complete_callback([check = std::move(check)] {
    if (const Status right = check(); !right.ok()) throw CLI::ValidationError(right.error().message);
  });
}

int run_cli(int argc, char** argv) {
  if (const auto folder = cache_folder(); folder.ok()) set_cache_folder(folder.value());
  CLI::App app{"zinc: run language models locally", "zinc"};
  app.formatter(std::make_shared<HelpFormat>());
  app.set_version_flag("--version", [] {
    return fmt::format("{}\nbackends: {} (default: {})", version_text(), backend_names(), default_backend().name);
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
  std::vector<std::string> arguments(argv + 1, argv + argc);
  complete_think_option(arguments);
  std::ranges::reverse(arguments);  // CLI11 takes them from the back
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    print_stderr(usage_error(app, error));
    return kExitUsage;
  }
  const Status status = run_command(chosen);
  if (status.ok()) return 0;
  print_stderr(fmt::format("zinc: {}", sanitize_line(status.error().message)));
  return status.error().code == ErrorCode::cancelled ? kExitInterrupted : kExitFailure;
}

}  // namespace zinc
