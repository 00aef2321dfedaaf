// Formats --help: commands in groups, option names, value placeholders and defaults, without the ranges that error
// messages show. Descriptions wrap at blanks to the terminal's width, with a hanging indent.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace zinc {

std::string argument_text(const CLI::Option& option);  // of a positional: "FILE", "[MODEL...]"
std::string value_text(const CLI::Option& option);     // of an option: "N", "FILE", "TEXT"; empty for flags
std::string default_text(const CLI::Option& option);   // "512"; also for lists, which CLI11 writes as "[512]"

// The help of `app`, which is called `name`, such as "zinc run".
std::string help_of(const CLI::App& app, const std::string& name);
// What `zinc` alone prints: what it is, a few examples, and where to read on.
std::string short_help();

class HelpFormat final : public CLI::Formatter {
 public:
  explicit HelpFormat(int width) : width_(width) {}

  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
  std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode mode) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::string entry(const std::string& name, const std::string& description, int column) const;
  int width_;  // of a line
};

int help_width();  // of the terminal, at most 100 columns; 80 if standard output is not a terminal

}  // namespace zinc
