// A model's chat template: renders a conversation to the prompt text. Immutable after compile(); render() is
// thread-safe. The prompt is a list of segments, each from the template's own text or from the request's input. Special
// tokens are recognized only in template text, so user text can never become one. Segments are not token boundaries:
// plain text must be tokenized across them.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/jinja/template.h"

namespace zinc {

using PromptSegment = jinja::Segment;

struct RenderedPrompt {
  std::vector<PromptSegment> segments;  // neighbors differ in from_input; none is empty
  std::string text() const;
  void append(std::string_view text, bool from_input);
};

struct ChatTemplateInputs {
  json::value messages;  // an array of messages
  json::value tools;     // an array, or null
  bool add_generation_prompt = true;
  json::object kwargs;  // further template variables, such as enable_thinking
  // From the model file, so trusted.
  std::string bos_token;
  std::string eos_token;
  jinja::LocalTime now{};  // local time, for templates that show the date
};

class ChatTemplate {
 public:
  // An error reads "template:LINE:COL: message".
  static Result<ChatTemplate> compile(std::string_view source);
  static ChatTemplate chatml();  // for models without a template

  // Fails if the template raises an exception or exceeds a limit.
  Result<RenderedPrompt> render(const ChatTemplateInputs& request) const;

  std::string_view name() const { return name_; }  // "model": from the model file; "chatml": built in
  const std::string& source() const { return source_; }

  // Capabilities, detected at compile time.
  bool supports_tools() const { return supports_tools_; }
  bool supports_thinking_toggle() const { return supports_thinking_toggle_; }  // enable_thinking or similar
  bool supports_system() const { return supports_system_; }                    // renders a leading system message

 private:
  ChatTemplate(jinja::Template compiled, std::string_view name, std::string source);

  jinja::Template compiled_;
  std::string_view name_;
  std::string source_;
  bool supports_tools_ = false;
  bool supports_thinking_toggle_ = false;
  bool supports_system_ = false;
};

}  // namespace zinc
