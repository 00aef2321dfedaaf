#include "text/generic_tools.h"

#include <algorithm>
#include <string>

namespace zinc {
namespace {

std::string_view role_of(const json::value& message) {
  const json::value* role = message.get_object().if_contains("role");
  return role && role->is_string() ? std::string_view(role->get_string()) : std::string_view();
}

std::string content_of(const json::value& message) {
  const json::value* content = message.get_object().if_contains("content");
  return content && content->is_string() ? std::string(content->get_string()) : std::string();
}

std::string call_text(const CallSyntax& syntax, std::string_view name, std::string_view arguments) {
  return fmt::format("{}{}{}{}{}{}{}", syntax.begin, syntax.open, name, syntax.before_arguments, arguments,
                     syntax.close, syntax.end);
}

std::string description(const GenericToolsPrompt& prompt) {
  std::string out =
      "# Tools\n\nYou can call the functions in this list. Each line is a JSON object with the name of a function, its "
      "description and the JSON schema of its parameters.\n<tools>\n";
  for (const json::value& tool : prompt.tools.get_array()) {
    const json::value* function = tool.get_object().if_contains("function");
    out += to_json(function ? *function : tool) + '\n';
  }
  out += "</tools>\n\nTo call a function, write its name and its arguments in exactly this form:\n";
  out += call_text(prompt.format.calls, "function_name", R"({"parameter_name": "value"})");
  return out +
         "\nThe result of a call is given between <tool_response> and </tool_response>. "
         "If no function is needed, answer with text.";
}

void append_paragraph(std::string& text, std::string_view paragraph) {
  if (!text.empty() && !paragraph.empty()) text += "\n\n";
  text += paragraph;
}

// An assistant message with its calls as text.
json::value with_calls_as_text(const ToolFormat& format, const json::value& message) {
  json::object out = message.get_object();
  std::string content = content_of(message);
  for (const json::value& call : out.at("tool_calls").get_array()) {
    const json::object& function = call.at("function").get_object();
    const json::value& arguments = function.at("arguments");
    const std::string text = arguments.is_string() ? std::string(arguments.get_string()) : to_json(arguments);
    if (!content.empty()) content += '\n';
    content += call_text(format.calls, std::string_view(function.at("name").get_string()), text);
  }
  out.erase("tool_calls");
  out["content"] = content;
  return out;
}

bool has_calls(const json::value& message) {
  const json::value* calls = message.get_object().if_contains("tool_calls");
  return calls && calls->is_array() && !calls->get_array().empty();
}

}  // namespace

bool has_tool_messages(const json::array& messages) {
  return std::ranges::any_of(messages, [](const json::value& m) { return role_of(m) == "tool" || has_calls(m); });
}

void add_generic_tools(const GenericToolsPrompt& prompt, json::array& messages) {
  json::array out;
  bool follows_result = false;  // templates want user and assistant to alternate: a result and the next text are joined
  for (const json::value& message : messages) {
    const bool is_result = role_of(message) == "tool";
    if (follows_result && (is_result || role_of(message) == "user")) {
      std::string content(out.back().at("content").get_string());
      append_paragraph(content, is_result ? fmt::format("<tool_response>\n{}\n</tool_response>", content_of(message))
                                          : content_of(message));
      out.back().at("content") = content;
    } else if (is_result) {
      out.push_back(json::object{
          {"role", "user"}, {"content", fmt::format("<tool_response>\n{}\n</tool_response>", content_of(message))}});
    } else {
      out.push_back(has_calls(message) ? with_calls_as_text(prompt.format, message) : message);
    }
    follows_result = is_result || (follows_result && role_of(message) == "user");
  }
  messages = std::move(out);
  if (prompt.tools.is_null()) return;
  const std::string_view target = prompt.supports_system ? "system" : "user";
  auto found = std::ranges::find_if(messages, [&](const json::value& m) { return role_of(m) == target; });
  if (prompt.supports_system && found != messages.begin()) found = messages.end();  // a later one is not the prompt
  if (found == messages.end()) {
    messages.insert(messages.begin(), json::object{{"role", target}, {"content", description(prompt)}});
    return;
  }
  std::string content = prompt.supports_system ? content_of(*found) : description(prompt);
  append_paragraph(content, prompt.supports_system ? description(prompt) : content_of(*found));
  found->at("content") = content;
}

}  // namespace zinc
