// How --help shows options: what to give and what holds otherwise, without the ranges that error messages have.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace zinc {

std::string value_text(const CLI::Option& option);  // "N", "TEXT", "[MODEL]"; empty for flags

class HelpFormat final : public CLI::Formatter {
 public:
  HelpFormat() { column_width(kColumns); }
  std::string make_option_opts(const CLI::Option* option) const override;

 private:
  static constexpr size_t kColumns = 34;
};

}  // namespace zinc
