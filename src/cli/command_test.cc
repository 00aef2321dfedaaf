#include "cli/command.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

namespace zinc {
namespace {

std::map<std::string, std::unique_ptr<CLI::App>> declared_commands() {
  std::map<std::string, std::unique_ptr<CLI::App>> commands;
  for (const Command* const* c = kCommands; *c; ++c) {
    auto app = std::make_unique<CLI::App>();
    (*c)->declare(*app);
    commands.emplace((*c)->path, std::move(app));
  }
  return commands;
}

// CLI11 2.4 and later (Ubuntu 24.04) throws at start otherwise; Debian 12's 2.1 accepts it.
TEST(Command, options_of_a_subcommand_have_other_names_than_the_arguments_of_its_parent) {
  const auto commands = declared_commands();
  int n_checked = 0;
  for (const auto& [path, app] : commands) {
    const size_t space = path.rfind(' ');
    const auto parent = space == std::string::npos ? commands.end() : commands.find(path.substr(0, space));
    if (parent == commands.end()) continue;
    ++n_checked;
    for (const CLI::Option* option : app->get_options()) {
      for (const std::string& name : option->get_lnames())
        EXPECT_EQ(parent->second->get_option_no_throw(name), nullptr) << "zinc " << path << " --" << name;
    }
  }
  EXPECT_GE(n_checked, 1);  // bench serve
}

}  // namespace
}  // namespace zinc
