// `zinc help [COMMAND]`: the same as `zinc COMMAND --help`.
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/help_format.h"
#include "cli/output.h"
#include "cli/sanitize_line.h"
#include "cli/usage_error.h"

namespace zinc::command_help {
namespace {

Status print_help(const CLI::App& root, const std::vector<std::string>& words) {
  const CLI::App* app = &root;
  std::string name = root.get_name();
  for (const std::string& word : words) {
    const auto known = app->get_subcommands([&](const CLI::App* command) { return command->check_name(word); });
    if (known.empty()) {
      std::string hint = suggestion_for(*app, word);
      if (!hint.empty()) hint += hint.ends_with('?') ? " " : "; ";
      return fail(ErrorCode::not_found, "no command '{} {}'; {}`zinc help` lists the commands", name,
                  sanitize_line(word), hint);
    }
    app = known.front();
    name += " " + app->get_name();
  }
  return write_output(help_of(*app, name));
}

std::function<Status()> declare(CLI::App& app) {
  auto words = std::make_shared<std::vector<std::string>>();
  app.add_option("command", *words, "the command to explain; if omitted, all commands are listed");
  return [words, &app] { return print_help(*app.get_parent(), *words); };
}

}  // namespace

extern const Command k_command_help = {.path = "help", .summary = "explain a command", .declare = declare};

}  // namespace zinc::command_help
