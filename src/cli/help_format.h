// Formats --help: option names, value placeholders and defaults, without the ranges that error messages show.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace zinc {

std::string argument_text(const CLI::Option& option);  // of a positional: "FILE", "[MODEL...]"
std::string value_text(const CLI::Option& option);     // of an option: "N", "TEXT"; empty for flags
std::string default_text(const CLI::Option& option);   // "512"; also for lists, which CLI11 writes as "[512]"

class HelpFormat final : public CLI::Formatter {
 public:
  HelpFormat() { column_width(kColumns); }
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_usage(const CLI::Option* option) const override;

 private:
  static constexpr size_t kColumns = 34;
};

}  // namespace zinc
