#include "cli/help_format.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "cli/display_width.h"
#include "cli/terminal.h"
#include "cli/word_wrap.h"

namespace zinc {
namespace {

constexpr int kOptionColumn = 34, kCommandColumn = 16;  // of descriptions
constexpr int kNarrowColumn = 6;                        // of descriptions below their names
constexpr int kMinDescription = 30;                     // columns; less is hard to read
constexpr size_t kShownNames = 2;                       // of an option; the man page has all of them

// The commands of `zinc --help`, by purpose. Those that are not listed come last.
struct CommandGroup {
  const char* title;
  std::vector<std::string> commands;
};
const std::vector<CommandGroup>& command_groups() {
  static const std::vector<CommandGroup> groups = {
      {"Start", {"run", "chat", "serve"}},         {"Models", {"list", "pull", "show", "use", "rm"}},
      {"Running server", {"ps", "stop"}},          {"This machine", {"check", "bench", "perplexity"}},
      {"Help", {"help", "version", "completion"}}, {"For developers", {}}};
  return groups;
}

bool is_listed(const std::string& command) {
  return std::ranges::any_of(command_groups(), [&](const CommandGroup& group) {
    return std::ranges::find(group.commands, command) != group.commands.end();
  });
}

constexpr const char* kExamples =
    "Examples:\n"
    "  zinc run 'Why is the sky blue?'          ask the default model\n"
    "  git diff | zinc run 'Review this.'       ask about a text\n"
    "  zinc chat qwen3-8b                       chat; the first use downloads it\n"
    "  zinc serve --open                        chat page, and APIs for programs\n";

}  // namespace

int help_width() {
  constexpr int kPiped = 80, kWidest = 100;
  const int width = terminal_width(STDOUT_FILENO);
  return width > 0 ? std::min(width, kWidest) : kPiped;
}

std::string argument_text(const CLI::Option& option) {
  if (!option.get_option_text().empty()) return option.get_option_text();
  std::string text;
  for (const char c : option.get_name(true)) text += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (option.get_expected_max() >= CLI::detail::expected_max_vector_size) text += "...";
  return option.get_required() ? text : "[" + text + "]";
}

std::string value_text(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";  // a flag
  if (!option.get_option_text().empty()) return option.get_option_text();
  const std::string type = option.get_type_name();
  if (type.starts_with("INT") || type.starts_with("UINT")) return "N";
  if (type.starts_with("FLOAT")) return "X";
  return type.starts_with("DIR") ? "DIR" : "TEXT";
}

std::string default_text(const CLI::Option& option) {
  const std::string& text = option.get_default_str();
  return text.starts_with('[') && text.ends_with(']') ? text.substr(1, text.size() - 2) : text;
}

std::string help_of(const CLI::App& app, const std::string& name) {
  // Not app.help(): for the root that is the help of the command that runs.
  return HelpFormat(help_width()).make_help(&app, name, CLI::AppFormatMode::Normal);
}

std::string short_help() {
  const int width = help_width();
  return fmt::format(
      "zinc runs language models on this machine.\n\n{}\n{}\n", wrap_words(kExamples, width, kNarrowColumn),
      wrap_words("`zinc help` lists the commands, `zinc list` the models; `zinc check` reports what this "
                 "machine can run.",
                 width));
}

// "  NAME    description", the description wrapped below itself, or below the name if the line is narrow.
std::string HelpFormat::entry(const std::string& name, const std::string& description, int column) const {
  const bool is_narrow = width_ < column + kMinDescription;
  const int indent = is_narrow ? kNarrowColumn : column;
  std::string left = "  " + name;
  const int n_left = display_width(left);
  if (description.empty()) return left + "\n";
  if (is_narrow || n_left + 2 > column) {
    left += "\n" + std::string(static_cast<size_t>(indent), ' ');
  } else {
    left.append(static_cast<size_t>(column - n_left), ' ');
  }
  return wrap_words(left + description, width_, indent) + "\n";
}

std::string HelpFormat::make_description(const CLI::App* app) const {
  std::string text = app->get_description();
  if (!text.empty() && !app->get_parent()) return wrap_words(text, width_) + "\n\n";
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return wrap_words(text + ".", width_) + "\n\n";
}

std::string HelpFormat::make_usage(const CLI::App* app, std::string name) const {
  std::string usage = CLI::Formatter::make_usage(app, std::move(name));
  usage = CLI::detail::find_and_replace(usage, "SUBCOMMAND", "COMMAND");
  constexpr int kIndent = 4;
  return wrap_words(usage, width_, kIndent);
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  return entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option),
               kOptionColumn);
}

std::string HelpFormat::make_option_name(const CLI::Option* option, bool is_positional) const {
  if (is_positional) return argument_text(*option);
  std::vector<std::string> names;
  for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  names.resize(std::min(names.size(), kShownNames));
  return CLI::detail::join(names, ", ");
}

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  if (option->get_positional()) return "";
  std::string text;
  if (const std::string value = value_text(*option); !value.empty()) text += " " + value;
  const std::string otherwise = default_text(*option);
  if (option->get_items_expected_max() != 0 && !otherwise.empty()) text += " [" + otherwise + "]";
  return text;
}

std::string HelpFormat::make_option_usage(const CLI::Option* option) const { return argument_text(*option); }

std::string HelpFormat::make_subcommands(const CLI::App* app, CLI::AppFormatMode) const {
  const std::vector<const CLI::App*> commands = app->get_subcommands([](const CLI::App*) { return true; });
  if (commands.empty()) return "";
  std::string text;
  const auto add = [&](const CLI::App& command) {
    text += entry(command.get_name(), command.get_description(), kCommandColumn);
  };
  if (app->get_parent()) {
    text += "\nCommands:\n";
    for (const CLI::App* command : commands) add(*command);
    return text;
  }
  for (const CommandGroup& group : command_groups()) {
    text += fmt::format("\n{}:\n", group.title);
    for (const std::string& name : group.commands) {
      const auto command = std::ranges::find(commands, name, &CLI::App::get_name);
      if (command != commands.end()) add(**command);
    }
    if (!group.commands.empty()) continue;
    for (const CLI::App* command : commands) {
      if (!is_listed(command->get_name())) add(*command);
    }
  }
  return text;
}

std::string HelpFormat::make_footer(const CLI::App* app) const {
  if (!app->get_parent()) {
    return wrap_words(kExamples, width_, kNarrowColumn) + "\n`zinc help COMMAND` explains one command.\n";
  }
  const std::string footer = app->get_footer();
  return footer.empty() ? "" : wrap_words(footer, width_) + "\n";
}

}  // namespace zinc
