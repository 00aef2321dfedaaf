#include "chat/render_messages.h"

#include <algorithm>

#include "base/pluralize.h"
#include "text/generic_tools.h"

namespace zinc {
namespace {

constexpr std::string_view kSeparator = "\n\n";  // between joined messages

bool has_role(const json::value& message, std::string_view role) { return message.at("role").get_string() == role; }

void append_content(json::object& message, std::string_view text) {
  std::string content(std::string_view(message.at("content").get_string()));
  if (!content.empty() && !text.empty()) content += kSeparator;
  message["content"] = content + std::string(text);
}

std::string_view content_of(const json::value& message) { return message.at("content").get_string(); }

// One system message at the head. False: nothing to change.
bool join_system_messages(json::array& messages) {
  json::object head{{"role", "system"}, {"content", ""}};
  json::array others;
  size_t n_system = 0;
  for (json::value& message : messages) {
    if (!has_role(message, "system")) {
      others.push_back(std::move(message));
      continue;
    }
    ++n_system;
    append_content(head, content_of(message));
  }
  const bool is_changed = n_system > 1 || (n_system == 1 && !has_role(messages.front(), "system"));
  json::array joined;
  if (n_system > 0) joined.push_back(std::move(head));
  for (json::value& message : others) joined.push_back(std::move(message));
  messages = std::move(joined);
  return is_changed;
}

// User messages, and assistant messages without tool calls. False: nothing to change.
bool join_neighbors(json::array& messages) {
  json::array joined;
  for (json::value& message : messages) {
    const bool is_plain = !message.get_object().contains("tool_calls");
    const bool is_joinable = is_plain && (has_role(message, "user") || has_role(message, "assistant"));
    const bool has_same_role = !joined.empty() && joined.back().at("role") == message.at("role") &&
                               !joined.back().get_object().contains("tool_calls");
    if (is_joinable && has_same_role) {
      append_content(joined.back().get_object(), content_of(message));
    } else {
      joined.push_back(std::move(message));
    }
  }
  const bool is_changed = joined.size() != messages.size();
  messages = std::move(joined);
  return is_changed;
}

// For templates without a system role. False: nothing to change.
bool move_system_to_user(json::array& messages) {
  if (messages.size() < 2 || !has_role(messages[0], "system") || !has_role(messages[1], "user")) return false;
  const std::string user(content_of(messages[1]));
  json::object& merged = messages[1].get_object();
  merged["content"] = messages[0].at("content");
  append_content(merged, user);
  messages.erase(messages.begin());
  return true;
}

struct Adaptation {
  bool (*apply)(json::array& messages);
  std::string_view note;
};
constexpr Adaptation kAdaptations[] = {
    {join_system_messages, "the chat template refuses these system messages: they were joined at the head"},
    {join_neighbors, "the chat template wants alternating roles: neighboring messages of one role were joined"},
    {move_system_to_user, "the chat template refuses a system message: it was put before the first user message"},
};

// OpenAI's newer name for the system role, which most templates do not support.
void rename_developer(const ChatModel& model, json::array& messages) {
  if (model.prompt.chat_template().source().find("developer") != std::string::npos) return;
  for (json::value& message : messages) {
    json::value& role = message.at("role");
    if (role.get_string() == "developer") role = "system";
  }
}

std::string text_field(const json::object& message, std::string_view name) {
  const json::value* text = message.if_contains(name);
  return text && text->is_string() ? std::string(text->get_string()) : std::string();
}

// The assistant prefix follows the generation prompt verbatim: no template trims or closes it.
void append_assistant_prefix(const ChatModel& model, const json::object& message, ChatRequest& request,
                             RenderedPrompt& prompt) {
  const ThinkingMarkers& markers = model.tool_format->thinking;
  const bool is_open = prompt_opens_reasoning(*model.tool_format, prompt.text());
  const std::string content = text_field(message, "content");
  std::string reasoning = text_field(message, "reasoning_content");
  if (markers.close.empty() || (!is_open && request.thinking == false)) reasoning.clear();
  if (!reasoning.empty() && !is_open) prompt.append(fmt::format("{}\n", markers.open), /*from_input=*/false);
  prompt.append(reasoning, /*from_input=*/true);
  const bool has_reasoning = is_open || !reasoning.empty();
  request.reasoning_is_open = has_reasoning && content.empty();
  if (has_reasoning && !content.empty())
    prompt.append(fmt::format("\n{}{}", markers.close, markers.before_answer), /*from_input=*/false);
  prompt.append(content, /*from_input=*/true);
}

}  // namespace

Result<RenderedPrompt> render_adapted(const ChatPrompt& prompt, ChatTemplateInputs inputs,
                                      std::vector<std::string>& notes) {
  Result<RenderedPrompt> first = prompt.render(inputs);
  if (first.ok()) return first;
  std::vector<std::string> changes;
  for (const Adaptation& adaptation : kAdaptations) {
    if (!adaptation.apply(inputs.messages.get_array())) continue;
    changes.emplace_back(adaptation.note);
    Result<RenderedPrompt> rendered = prompt.render(inputs);
    if (!rendered.ok()) continue;
    notes.insert(notes.end(), changes.begin(), changes.end());
    return rendered;
  }
  return first;
}

namespace {

OrRequestError<RenderedPrompt> render_all(const ChatModel& model, ChatRequest& request) {
  rename_developer(model, request.messages);
  json::value prefix;
  if (request.continue_final_message) {  // its last message is the assistant's
    prefix = std::move(request.messages.back());
    request.messages.pop_back();
  }
  const ChatTemplate& chat = model.prompt.chat_template();
  if (!chat.supports_tools() && (!request.tools.is_null() || has_tool_messages(request.messages))) {
    add_generic_tools({.tools = request.tools, .format = *model.tool_format, .supports_system = chat.supports_system()},
                      request.messages);
  }
  ChatTemplateInputs inputs;
  inputs.messages = request.messages;
  inputs.tools = request.tools;
  inputs.kwargs = request.template_kwargs;
  model.thinking.set_variables({.is_on = request.thinking, .effort = request.reasoning_effort}, inputs.kwargs);
  inputs.add_generation_prompt = request.add_generation_prompt;
  Result<RenderedPrompt> rendered = render_adapted(model.prompt, std::move(inputs), request.notes);
  if (!rendered.ok()) {
    return invalid_field("messages", "the model's chat template rejected this conversation: {}",
                         rendered.error().message);
  }
  RenderedPrompt& prompt = rendered.value();
  if (request.thinking == false) close_open_reasoning(*model.tool_format, prompt);
  if (request.continue_final_message) append_assistant_prefix(model, prefix.get_object(), request, prompt);
  return std::move(prompt);
}

// Without the oldest turns, as many as the context requires; system messages at the head stay.
OrRequestError<RenderedPrompt> render_newest(const ChatModel& model, ChatRequest& request) {
  const json::array all = request.messages;
  size_t n_head = 0;
  while (n_head < all.size() && (has_role(all[n_head], "system") || has_role(all[n_head], "developer"))) ++n_head;
  std::vector<size_t> starts = {n_head};  // of turns
  for (size_t i = n_head + 1; i < all.size(); ++i) {
    if (has_role(all[i], "user")) starts.push_back(i);
  }
  const auto from = [&](size_t start) {
    json::array messages(all.begin(), all.begin() + static_cast<ptrdiff_t>(n_head));
    for (size_t i = start; i < all.size(); ++i) messages.push_back(all[i]);
    return messages;
  };
  const auto fits = [&](size_t start) {
    ChatRequest attempt = request;
    attempt.messages = from(start);
    const OrRequestError<RenderedPrompt> rendered = render_all(model, attempt);
    const RenderedPrompt* prompt = std::get_if<RenderedPrompt>(&rendered);
    const int n_output = std::clamp(request.options.max_tokens, 1, std::max(model.limits.context / 2, 1));
    return prompt && std::ssize(model.prompt.encode(*prompt)) + n_output <= model.limits.context;
  };
  // Binary search for the first turn that fits with all later ones; the last turn is always kept.
  const auto first = std::partition_point(starts.begin(), starts.end() - 1, [&](size_t start) { return !fits(start); });
  request.messages = from(*first);
  if (*first > n_head) {
    request.notes.push_back(fmt::format("{} left out: the conversation exceeds the context",
                                        pluralize(static_cast<int>(*first - n_head), "old message")));
  }
  return render_all(model, request);
}

}  // namespace

OrRequestError<RenderedPrompt> render(const ChatModel& model, ChatRequest& request) {
  return request.drop_oldest_messages ? render_newest(model, request) : render_all(model, request);
}

}  // namespace zinc
