#include "text/chat_template.h"

#include <algorithm>
#include <array>

namespace zinc {
namespace {

constexpr std::string_view kChatMl =
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}";

// Template variables that switch or configure thinking in published templates.
constexpr std::array kThinkingNames = {"enable_thinking", "thinking", "reasoning_effort", "thinking_budget"};

// Renders a probe: templates without system messages raise an error or drop the message.
bool renders_system_message(const ChatTemplate& chat) {
  static constexpr std::string_view kProbe = "zinc-system-probe";
  ChatTemplateInputs request;
  request.messages = json::array{json::object{{"role", "system"}, {"content", kProbe}},
                                 json::object{{"role", "user"}, {"content", "hi"}}};
  for (const json::value& tools :
       {json::value(), json::value(json::array{})}) {  // some templates fail if tools is null
    request.tools = tools;
    const Result<RenderedPrompt> prompt = chat.render(request);
    if (prompt.ok()) return prompt.value().text().find(kProbe) != std::string::npos;
  }
  return false;
}

}  // namespace

std::string RenderedPrompt::text() const {
  std::string text;
  for (const PromptSegment& segment : segments) text += segment.text;
  return text;
}

void RenderedPrompt::append(std::string_view text, bool from_input) {
  if (text.empty()) return;
  if (!segments.empty() && segments.back().from_input == from_input) {
    segments.back().text += text;
  } else {
    segments.push_back({.text = std::string(text), .from_input = from_input});
  }
}

ChatTemplate::ChatTemplate(jinja::Template compiled, std::string_view name, std::string source)
    : compiled_(std::move(compiled)), name_(name), source_(std::move(source)) {
  supports_tools_ = compiled_.mentions("tools");
  supports_thinking_toggle_ = std::any_of(kThinkingNames.begin(), kThinkingNames.end(),
                                          [this](std::string_view variable) { return compiled_.mentions(variable); });
  supports_system_ = renders_system_message(*this);
}

Result<ChatTemplate> ChatTemplate::compile(std::string_view source) {
  ZINC_TRY(compiled, jinja::Template::compile(source));
  return ChatTemplate(std::move(compiled), "model", std::string(source));
}

ChatTemplate ChatTemplate::chatml() {
  Result<jinja::Template> compiled = jinja::Template::compile(kChatMl);
  ZINC_CHECK(compiled.ok());
  return ChatTemplate(std::move(compiled.value()), "chatml", std::string(kChatMl));
}

Result<RenderedPrompt> ChatTemplate::render(const ChatTemplateInputs& request) const {
  const json::value none, add_generation_prompt = request.add_generation_prompt;
  const json::value bos_token = json::value_from(request.bos_token), eos_token = json::value_from(request.eos_token);
  std::vector<jinja::Variable> variables = {{"documents", &none, true}};
  for (const auto& member : request.kwargs) variables.push_back({member.key(), &member.value(), true});
  // After kwargs: a request must not override the conversation or the model's special tokens.
  variables.push_back({"messages", &request.messages, true});
  variables.push_back({"tools", &request.tools, true});
  variables.push_back({"add_generation_prompt", &add_generation_prompt, true});
  variables.push_back({"bos_token", &bos_token, false});
  variables.push_back({"eos_token", &eos_token, false});
  ZINC_TRY(segments, compiled_.render(variables, request.now));
  return RenderedPrompt{std::move(segments)};
}

}  // namespace zinc
