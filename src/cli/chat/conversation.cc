#include "cli/chat/conversation.h"

namespace zinc {
namespace {

Result<std::string> text_field(const json::object& message, std::string_view field, size_t index) {
  const json::value* const value = message.if_contains(field);
  if (value && value->is_string()) return std::string(value->get_string());
  return fail(ErrorCode::invalid_input, "message {}: '{}' must be a string", index, field);
}

}  // namespace

json::array Conversation::messages() const {
  json::array out;
  if (!system.empty()) out.push_back({{"role", "system"}, {"content", system}});
  for (const Turn& turn : turns) {
    out.push_back({{"role", "user"}, {"content", turn.question}});
    json::object answer{{"role", "assistant"}, {"content", turn.answer}};
    if (!turn.reasoning.empty()) answer["reasoning_content"] = turn.reasoning;
    out.push_back(std::move(answer));
  }
  return out;
}

json::array Conversation::messages_with(std::string_view question) const {
  json::array out = messages();
  out.push_back({{"role", "user"}, {"content", question}});
  return out;
}

Result<Conversation> Conversation::read(const json::value& file) {
  const json::value* const list = file.is_object() ? file.get_object().if_contains("messages") : nullptr;
  if (!list || !list->is_array()) {
    return fail(ErrorCode::invalid_input, "not a conversation; expected an object with an array 'messages'");
  }
  Conversation out;
  bool has_system = false;
  const json::array& messages = list->get_array();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!messages[i].is_object()) return fail(ErrorCode::invalid_input, "message {} is not an object", i);
    const json::object& message = messages[i].get_object();
    ZINC_TRY(role, text_field(message, "role", i));
    ZINC_TRY(content, text_field(message, "content", i));
    const bool wants_answer = (i + (has_system ? 1 : 0)) % 2 == 1;
    if (i == 0 && role == "system") {
      out.system = content;
      has_system = true;
    } else if (role == "user" && !wants_answer) {
      out.turns.push_back({.question = content, .answer = ""});
    } else if (role == "assistant" && wants_answer) {
      out.turns.back().answer = content;
      if (message.contains("reasoning_content")) {
        ZINC_TRY(reasoning, text_field(message, "reasoning_content", i));
        out.turns.back().reasoning = reasoning;
      }
    } else {
      return fail(ErrorCode::invalid_input, "message {} has role '{}'; expected '{}'", i, role,
                  wants_answer ? "assistant" : "user");
    }
  }
  if ((messages.size() + (has_system ? 1 : 0)) % 2 == 1) {
    return fail(ErrorCode::invalid_input, "the last user message has no reply");
  }
  return out;
}

}  // namespace zinc
