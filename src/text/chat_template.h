// A model's chat template: a conversation in, the prompt text out. Immutable after compile(); render() is thread-safe.
// The prompt comes in segments that say whether a piece is the template's own text or came from the request. Only in
// the template's own may special tokens be recognised: what a user writes can never become one. Segments are marks on
// one text, not borders between tokens: plain text must be tokenised across them.
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
  std::vector<PromptSegment> segments;  // neighbours differ in from_input; none is empty
  std::string text() const;
};

struct ChatRequestData {
  json::value messages;  // an array of messages
  json::value tools;     // an array, or null where there are none
  bool add_generation_prompt = true;
  json::object kwargs;  // further template variables, such as enable_thinking
  // The model's own, so trusted.
  std::string bos_token;
  std::string eos_token;
  jinja::LocalTime now{};  // local time, for templates that show the date
};

class ChatTemplate {
 public:
  // An error reads "template:LINE:COL: message".
  static Result<ChatTemplate> compile(std::string_view source);
  static ChatTemplate chatml();  // for models that bring no template

  // An error is the template's own (it refused the conversation) or a limit it ran into.
  Result<RenderedPrompt> render(const ChatRequestData& request) const;

  std::string_view name() const { return name_; }  // "model" for one of a model's own, "chatml" for the built-in one
  const std::string& source() const { return source_; }

  // What the template can do, found out when it was compiled.
  bool supports_tools() const { return supports_tools_; }
  bool supports_thinking_toggle() const { return supports_thinking_toggle_; }  // enable_thinking or its like
  bool supports_system() const { return supports_system_; }                    // a leading system message is shown

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
