#include "cli/chat/page_export.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace zinc {
namespace {

std::string text_in(const json::object& object, std::string_view name) {
  const json::value* const value = object.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

std::vector<const json::object*> objects_in(const json::object& object, std::string_view name) {
  std::vector<const json::object*> out;
  const json::value* const list = object.if_contains(name);
  if (!list || !list->is_array()) return out;
  for (const json::value& entry : list->get_array()) {
    if (entry.is_object()) out.push_back(&entry.get_object());
  }
  return out;
}

// The messages from the first to the head: each names its parent. Ids that form a cycle end the walk.
std::vector<const json::object*> visible_branch(const json::object& conversation) {
  std::map<std::string, const json::object*> by_id;
  for (const json::object* message : objects_in(conversation, "messages")) by_id[text_in(*message, "id")] = message;
  std::vector<const json::object*> branch;
  auto found = by_id.find(text_in(conversation, "head"));
  while (found != by_id.end() && branch.size() < by_id.size()) {
    branch.push_back(found->second);
    found = by_id.find(text_in(*found->second, "parent"));
  }
  std::ranges::reverse(branch);
  return branch;
}

std::string text_with_attachments(const json::object& message) {
  std::string text;
  for (const json::object* file : objects_in(message, "attachments"))
    text += fmt::format("{}\n```\n{}\n```\n\n", text_in(*file, "name"), text_in(*file, "text"));
  return text + text_in(message, "content");
}

}  // namespace

bool is_page_export(const json::value& file) {
  return file.is_object() && text_in(file.get_object(), "format") == "zinc-conversations";
}

Result<json::object> read_page_export(const json::value& file) {
  const std::vector<const json::object*> conversations = objects_in(file.get_object(), "conversations");
  if (conversations.size() != 1) {
    return fail(ErrorCode::invalid_input, "has {} conversations; expected one: export it alone on the chat page",
                conversations.size());
  }
  json::array messages;
  const json::value* const settings = conversations.front()->if_contains("settings");
  if (const std::string system = settings && settings->is_object() ? text_in(settings->get_object(), "system") : "";
      !system.empty()) {
    messages.push_back({{"role", "system"}, {"content", system}});
  }
  json::object out;
  for (const json::object* message : visible_branch(*conversations.front())) {
    const std::string role = text_in(*message, "role");
    if (role == "tool" || !objects_in(*message, "toolCalls").empty())
      return fail(ErrorCode::unsupported, "has tool calls, which `zinc chat` does not support");
    json::object read{{"role", role}, {"content", text_with_attachments(*message)}};
    if (const std::string reasoning = text_in(*message, "reasoning"); !reasoning.empty())
      read["reasoning_content"] = reasoning;
    messages.push_back(std::move(read));
  }
  if (!messages.empty() && messages.back().at("role").get_string() == "user") {
    out["unanswered"] = messages.back().at("content");
    messages.pop_back();
  }
  out["messages"] = std::move(messages);
  return out;
}

}  // namespace zinc
