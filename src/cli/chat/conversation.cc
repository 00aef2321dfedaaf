#include "cli/chat/conversation.h"

#include <algorithm>

namespace zinc {
namespace {

Result<std::string> text_field(const json::object& message, std::string_view field, size_t index) {
  const json::value* const value = message.if_contains(field);
  if (value && value->is_string()) return std::string(value->get_string());
  return fail(ErrorCode::invalid_input, "message {}: '{}' must be a string", index, field);
}

}  // namespace

json::array Conversation::messages_from(size_t first_turn) const {
  json::array out;
  if (!system.empty()) out.push_back({{"role", "system"}, {"content", system}});
  for (size_t i = first_turn; i < turns.size(); ++i) {
    const Turn& turn = turns[i];
    out.push_back({{"role", "user"}, {"content", turn.question}});
    json::object answer{{"role", "assistant"}, {"content", turn.answer}};
    if (!turn.reasoning.empty()) answer["reasoning_content"] = turn.reasoning;
    out.push_back(std::move(answer));
  }
  return out;
}

json::array Conversation::messages() const { return messages_from(0); }

json::array Conversation::prompt(std::string_view question) const {
  json::array out = messages_from(n_left_out);
  if (!question.empty()) out.push_back({{"role", "user"}, {"content", question}});
  return out;
}

std::string Conversation::title() const {
  const std::string& first = turns.empty() ? unanswered : turns.front().question;
  const size_t begin = std::min(first.find_first_not_of(" \t\n"), first.size());
  return first.substr(begin, first.find('\n', begin) - begin);
}

json::object Conversation::to_json() const {
  json::object out{{"messages", messages()}};
  if (!unanswered.empty()) out["unanswered"] = unanswered;
  if (n_left_out > 0) out["n_left_out"] = static_cast<int64_t>(n_left_out);
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
      if (const json::value* given = message.if_contains("reasoning_content"); given && !given->is_null()) {
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
  const json::object& fields = file.get_object();
  if (const json::value* text = fields.if_contains("unanswered"); text && text->is_string())
    out.unanswered = text->get_string();
  if (const json::value* n = fields.if_contains("n_left_out"); n && n->is_int64() && n->get_int64() > 0)
    out.n_left_out = std::min(static_cast<size_t>(n->get_int64()), out.turns.size());
  return out;
}

}  // namespace zinc
