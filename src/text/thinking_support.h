// The thinking modes of a model, and the chat template variables that select one. Detected at load: the template is
// rendered with each setting, and settings that change the prompt are supported. Immutable; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"
#include "text/tool_format.h"

namespace zinc {

// The mode that a request asks for. Both unset: the template's default.
struct ThinkingMode {
  std::optional<bool> is_on = {};
  std::string effort = {};  // "low"; empty: not given
};

struct ThinkingSupport {
  enum class Kind : uint8_t { none, toggle, effort };

  Kind kind = Kind::none;
  bool can_disable = false;
  std::string off_effort = {};  // for Kind::effort: reasoning_effort if thinking is off; empty: the toggle suffices
  std::vector<std::string> efforts = {};  // for Kind::effort; ascending, without "none"
  std::string default_mode = "off";       // "on", "off" or an effort
  bool has_budget = false;                // the end of the reasoning can be forced

  static ThinkingSupport detect(const ChatTemplate& chat, const ToolFormat& format);
  // Sets the template variables for `mode`. An effort that the template does not have becomes the nearest one; "off"
  // becomes the lowest effort if thinking cannot be disabled. Efforts already in `variables` stay.
  void set_variables(const ThinkingMode& mode, json::object& variables) const;
};

std::string_view thinking_kind_name(ThinkingSupport::Kind kind);  // "none", "toggle", "effort"
bool is_thinking_effort(std::string_view word);                   // minimal, low, medium, high, xhigh or max
json::object thinking_json(const ThinkingSupport& support);       // for /props

// Templates without a switch open the reasoning even if thinking is off: closes it at once.
void close_open_reasoning(const ToolFormat& format, RenderedPrompt& prompt);

}  // namespace zinc
