#include "text/tool_format.h"

#include <algorithm>

namespace zinc {
namespace {

bool recognizes(const ToolFormat& format, std::string_view template_source) {
  const auto contains = [&](std::string_view marker) {
    return template_source.find(marker) != std::string_view::npos;  // "" is in every text
  };
  const auto is_present = [&](std::string_view marker) { return !marker.empty() && contains(marker); };
  return !format.template_has[0].empty() &&
         std::all_of(format.template_has.begin(), format.template_has.end(), contains) &&
         std::none_of(format.template_lacks.begin(), format.template_lacks.end(), is_present);
}

}  // namespace

const ToolFormat* find_tool_format(std::string_view name) {
  for (const ToolFormat* const* f = kToolFormats; *f; ++f) {
    if ((*f)->name == name) return *f;
  }
  return nullptr;
}

std::string tool_format_names() {
  std::string names;
  for (const ToolFormat* const* f = kToolFormats; *f; ++f) {
    if (!names.empty()) names += ", ";
    names += (*f)->name;
  }
  return names;
}

const ToolFormat& detect_tool_format(std::string_view template_source, std::string_view architecture) {
  for (const ToolFormat* const* f = kToolFormats; *f; ++f) {
    if (recognizes(**f, template_source)) return **f;
    if (template_source.empty() && !architecture.empty() && (*f)->architecture == architecture) return **f;
  }
  return k_tool_format_plain;
}

bool prompt_opens_reasoning(const ToolFormat& format, std::string_view prompt) {
  if (format.thinking.open.empty()) return false;
  const size_t end = prompt.find_last_not_of(" \n\t\r");
  return end != std::string_view::npos && prompt.substr(0, end + 1).ends_with(format.thinking.open);
}

}  // namespace zinc
