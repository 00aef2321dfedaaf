#include "cli/help_format.h"

namespace zinc {

std::string value_text(const CLI::Option& option) {
  if (!option.get_option_text().empty()) return option.get_option_text();
  if (option.get_items_expected_max() == 0) return "";  // a flag
  const std::string type = option.get_type_name();      // "INT:INT in [0 - 1024]"
  if (type.starts_with("INT") || type.starts_with("UINT")) return "N";
  return type.starts_with("FLOAT") ? "X" : "TEXT";
}

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  std::string text;
  if (const std::string value = value_text(*option); !value.empty()) text += " " + value;
  const std::string& otherwise = option->get_default_str();
  if (option->get_items_expected_max() != 0 && !otherwise.empty()) text += " [" + otherwise + "]";
  return text;
}

}  // namespace zinc
