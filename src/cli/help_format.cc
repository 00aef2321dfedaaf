#include "cli/help_format.h"

#include <cctype>

namespace zinc {

std::string argument_text(const CLI::Option& option) {
  if (!option.get_option_text().empty()) return option.get_option_text();
  std::string text;
  for (const char c : option.get_name(true)) text += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (option.get_expected_max() >= CLI::detail::expected_max_vector_size) text += "...";
  return option.get_required() ? text : "[" + text + "]";
}

std::string value_text(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";  // a flag
  const std::string type = option.get_type_name();
  if (type.starts_with("INT") || type.starts_with("UINT")) return "N";
  return type.starts_with("FLOAT") ? "X" : "TEXT";
}

std::string default_text(const CLI::Option& option) {
  const std::string& text = option.get_default_str();
  return text.starts_with('[') && text.ends_with(']') ? text.substr(1, text.size() - 2) : text;
}

std::string HelpFormat::make_option_name(const CLI::Option* option, bool is_positional) const {
  if (is_positional) return argument_text(*option);
  return CLI::detail::find_and_replace(option->get_name(false, true), "{false}", "");
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

}  // namespace zinc
