#include "cli/usage_error.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/nearest_name.h"
#include "cli/foreign_words.h"
#include "cli/help_format.h"
#include "cli/hub_settings.h"
#include "cli/sanitize_line.h"
#include "cli/shell_word.h"
#include "hub/resolve.h"

namespace zinc {
namespace {

// The innermost command on the command line: the error points to its help.
const CLI::App& named_app(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : named_app(*chosen.front());
}

std::string path_of(const CLI::App& app) {
  std::string path = app.get_name();
  for (const CLI::App* a = app.get_parent(); a; a = a->get_parent()) path = a->get_name() + " " + path;
  return path;
}

// A command of one letter more than a word that is too short for nearest_name(): "rn" is "run".
std::optional<std::string> longer_command(const std::string& word, const std::vector<std::string>& names) {
  constexpr size_t kShort = 2;
  const auto found = std::ranges::find_if(names, [&](const std::string& name) {
    return word.size() == kShort && name.size() == kShort + 1 && edit_distance(word, name) == 1;
  });
  return found == names.end() || word.starts_with('-') ? std::nullopt : std::optional(*found);
}

// For `zinc MODEL` and `zinc 'PROMPT'`.
std::string missing_run(const std::string& word) {
  if (word.find(' ') != std::string::npos) return "use `zinc run 'PROMPT'`";
  const Result<HubSettings> settings = hub_settings();
  const bool is_model = settings.ok() && names_model(settings.value(), word);
  return is_model ? fmt::format("use `zinc run {}`", sanitize_line(shell_word(word))) : "";
}

const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_name() == name || option->check_name(name)) return option;
  }
  return nullptr;
}

// An option as typed, or the name of a positional argument: "--temp", "NAME".
std::string shown_name(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = find_option(app, name);
  if (!option || !option->get_positional()) return name;
  std::string text = argument_text(*option);
  std::erase_if(text, [](char c) { return c == '[' || c == ']' || c == '.'; });
  return text;
}

std::string expected_text(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = find_option(app, name);
  const std::string value = option ? value_text(*option) : "";
  return value == "N" ? "; expected a whole number" : value == "X" ? "; expected a number" : "";
}

// The message of the parser in zinc's words; unchanged if it is one of ours.
std::string plain_message(const CLI::App& app, const CLI::ParseError& error) {
  const std::string kind = error.get_name(), what = error.what();
  const auto split = [&](std::string_view between) -> std::optional<std::pair<std::string, std::string>> {
    const size_t at = what.find(between);
    if (at == std::string::npos) return std::nullopt;
    return std::pair(what.substr(0, at), what.substr(at + between.size()));
  };
  if (kind == "ConversionError") {
    constexpr std::string_view kStart = "Could not convert: ";
    const auto parts = split(" = ");
    if (!parts || !what.starts_with(kStart)) return what;
    const std::string name = parts->first.substr(kStart.size());
    return fmt::format("{}: '{}' is not a valid value{}", shown_name(app, name), parts->second,
                       expected_text(app, name));
  }
  if (const auto parts = split(" is required"); kind == "RequiredError" && parts) {
    return fmt::format("missing argument {}", shown_name(app, parts->first));
  }
  if (const auto parts = split(" excludes "); kind == "ExcludesError" && parts) {
    return fmt::format("{} and {} cannot be combined", parts->first, parts->second);
  }
  if (const auto parts = split(":"); kind == "ArgumentMismatch" && parts) {
    return fmt::format("{} needs a value", shown_name(app, parts->first));
  }
  const auto named = split(": "), member = split(" not in {");
  if (kind == "ValidationError" && named && member && named->first.size() < member->first.size()) {
    const std::string value = member->first.substr(named->first.size() + 2);
    const std::string values = member->second.substr(0, member->second.rfind('}'));
    return fmt::format("{}: '{}' is not one of {}", shown_name(app, named->first), value,
                       CLI::detail::find_and_replace(values, ",", ", "));
  }
  return what;
}

std::string error_line(const std::string& what, const std::string& hint, const std::string& path) {
  return fmt::format("zinc: {}; {}see `{} --help`", what, hint.empty() ? "" : hint + (hint.ends_with('?') ? " " : "; "),
                     path);
}

}  // namespace

std::string suggestion_for(const CLI::App& app, const std::string& word) {
  const bool is_option = word.starts_with('-');
  const std::string_view answer = is_option ? foreign_option(app.get_name(), word)
                                            : (app.get_parent() ? std::string_view() : foreign_command(word));
  if (!answer.empty()) return std::string(answer);
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() != "rm") names.push_back(command->get_name());
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  std::erase_if(names, [&](const std::string& name) { return name.starts_with('-') != is_option; });
  std::optional<std::string> nearest = nearest_name(word.substr(0, word.find('=')), names);
  if (!nearest) nearest = longer_command(word, names);
  if (nearest) return fmt::format("did you mean `{}`?", *nearest);
  return is_option || app.get_parent() ? "" : missing_run(word);
}

std::string usage_error(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App& app = root.remaining().empty() ? named_app(root) : root;  // else a word before the command
  // An unknown option first: the word after it would be reported as an unexpected argument.
  std::vector<std::string> unknown = root.remaining(true);
  std::stable_partition(unknown.begin(), unknown.end(), [](const std::string& word) { return word.starts_with('-'); });
  const bool is_group = app.get_require_subcommand_min() > 0;
  if (unknown.empty()) {
    const std::string what = is_group ? "a command is missing" : sanitize_line(plain_message(app, error));
    return error_line(what, "", path_of(app));
  }
  const std::string& word = unknown.front();
  const char* const kind = word.starts_with('-') ? "unknown option"
                           : is_group            ? "unknown command"
                                                 : "unexpected argument";
  return error_line(fmt::format("{} '{}'", kind, sanitize_line(word)), suggestion_for(app, word), path_of(app));
}

std::string misread_option_error(const CLI::App& root, const std::string& command, const std::string& option) {
  const auto known = root.get_subcommands([&](const CLI::App* app) { return app->get_name() == command; });
  const CLI::App& app = known.empty() ? root : *known.front();
  return error_line(fmt::format("unknown option '{}'", sanitize_line(option)), suggestion_for(app, option),
                    path_of(app));
}

}  // namespace zinc
