// `zinc completion SHELL` and `zinc completion man`: shell completions and the man page.
#include <array>
#include <memory>

#include "cli/command.h"
#include "cli/man_page.h"
#include "cli/output.h"

namespace zinc::command_completion {
namespace {

struct Page {
  const char* name;
  std::string (*write)(const CLI::App& root);
};
constexpr std::array kPages = {Page{"bash", bash_completion}, Page{"zsh", zsh_completion},
                               Page{"fish", fish_completion}, Page{"man", man_page}};

std::function<Status()> declare(CLI::App& app) {
  auto wanted = std::make_shared<std::string>();
  app.add_option("page", *wanted, "bash, zsh or fish: completions for that shell; man: the man page, as troff")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "man"}));
  app.footer("For the current shell only: source <(zinc completion bash)");
  return [wanted, &app] {
    for (const Page& page : kPages) {
      if (*wanted == page.name) return write_output(page.write(*app.get_parent()));
    }
    return ok_status();
  };
}

}  // namespace

extern const Command k_command_completion = {
    .path = "completion", .summary = "print completions for a shell, or the man page", .declare = declare};

}  // namespace zinc::command_completion
