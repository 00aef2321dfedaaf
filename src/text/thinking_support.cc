#include "text/thinking_support.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace zinc {
namespace {

constexpr std::array<std::string_view, 6> kEfforts = {"minimal", "low", "medium", "high", "xhigh", "max"};
constexpr std::string_view kEffortName = "reasoning_effort", kNoEffort = "none";
constexpr std::array<std::string_view, 2> kToggleNames = {"enable_thinking", "thinking"};

int effort_rank(std::string_view effort) {
  return static_cast<int>(std::ranges::find(kEfforts, effort) - kEfforts.begin());
}

// The prompt of a short conversation; nullopt: the template rejects these variables.
std::optional<std::string> render_probe(const ChatTemplate& chat, const json::object& variables) {
  ChatTemplateInputs inputs;
  inputs.messages = json::array{json::object{{"role", "user"}, {"content", "hi"}}};
  inputs.kwargs = variables;
  for (const json::value& tools : {json::value(), json::value(json::array{})}) {  // some templates fail on null
    inputs.tools = tools;
    const Result<RenderedPrompt> prompt = chat.render(inputs);
    if (prompt.ok()) return prompt.value().text();
  }
  return std::nullopt;
}

json::object toggle_variables(bool is_on) {
  json::object out;
  for (const std::string_view name : kToggleNames) out[name] = is_on;
  return out;
}

// The family's efforts, else those that the template compares with.
std::vector<std::string> find_efforts(const ChatTemplate& chat, const ToolFormat& format) {
  const auto render = [&](std::string_view effort) { return render_probe(chat, {{kEffortName, effort}}); };
  if (render("low") == render("high")) return {};
  std::vector<std::string> out;
  for (const std::string_view effort : kEfforts) {
    const bool is_of_family = std::ranges::find(format.efforts, effort) != format.efforts.end();
    const bool is_compared = chat.source().find(fmt::format("'{}'", effort)) != std::string::npos ||
                             chat.source().find(fmt::format("\"{}\"", effort)) != std::string::npos;
    const bool is_known = format.efforts.front().empty() ? is_compared : is_of_family;
    if (is_known && render(effort)) out.emplace_back(effort);
  }
  return out;
}

bool has_no_effort(const ChatTemplate& chat, const ToolFormat& format) {
  return format.efforts.front().empty() && chat.source().find(kNoEffort) != std::string::npos &&
         render_probe(chat, {{kEffortName, kNoEffort}}) != render_probe(chat, {{kEffortName, "high"}});
}

}  // namespace

ThinkingSupport ThinkingSupport::detect(const ChatTemplate& chat, const ToolFormat& format) {
  ThinkingSupport out;
  const std::optional<std::string> usual = render_probe(chat, {}), on = render_probe(chat, toggle_variables(true)),
                                   off = render_probe(chat, toggle_variables(false));
  if (!usual) return out;
  const bool has_toggle = on && off && on != off;
  const bool starts_open = prompt_opens_reasoning(format, *usual);
  out.efforts = find_efforts(chat, format);
  out.can_disable = has_toggle || starts_open;
  if (!out.efforts.empty()) {
    out.kind = Kind::effort;
    const bool has_none = has_no_effort(chat, format);
    if (has_none || !out.can_disable) out.off_effort = has_none ? std::string(kNoEffort) : out.efforts.front();
    out.can_disable = out.can_disable || has_none;
  } else if (has_toggle || starts_open) {
    out.kind = Kind::toggle;
  } else {
    return out;
  }
  out.has_budget = !format.thinking.close.empty();
  out.default_mode = has_toggle && usual == off ? "off" : "on";
  for (const std::string& effort : out.efforts) {
    if (render_probe(chat, {{kEffortName, effort}}) == usual) out.default_mode = effort;
  }
  return out;
}

void ThinkingSupport::set_variables(const ThinkingMode& mode, json::object& variables) const {
  for (const std::string_view name : kToggleNames) {
    if (mode.is_on) variables[name] = *mode.is_on;
  }
  const bool is_off = mode.is_on == false;
  if (variables.contains(kEffortName) || (mode.effort.empty() && !is_off)) return;
  if (kind != Kind::effort) {
    if (!is_off) variables[kEffortName] = mode.effort;
    return;
  }
  if (is_off) {
    if (!off_effort.empty()) variables[kEffortName] = off_effort;
    return;
  }
  const auto distance = [&](const std::string& effort) {
    return std::abs(effort_rank(effort) - effort_rank(mode.effort));
  };
  variables[kEffortName] = *std::ranges::min_element(efforts, {}, distance);
}

std::string_view thinking_kind_name(ThinkingSupport::Kind kind) {
  static constexpr std::array<std::string_view, 3> kNames = {"none", "toggle", "effort"};
  return kNames[static_cast<size_t>(kind)];
}

bool is_thinking_effort(std::string_view word) { return std::ranges::find(kEfforts, word) != kEfforts.end(); }

json::object thinking_json(const ThinkingSupport& support) {
  return {{"kind", thinking_kind_name(support.kind)},
          {"can_disable", support.can_disable},
          {"efforts", json::array(support.efforts.begin(), support.efforts.end())},
          {"default", support.default_mode},
          {"budget", support.has_budget}};
}

void close_open_reasoning(const ToolFormat& format, RenderedPrompt& prompt) {
  if (!prompt_opens_reasoning(format, prompt.text())) return;
  prompt.append(fmt::format("\n{}{}", format.thinking.close, format.thinking.before_answer), /*from_input=*/false);
}

}  // namespace zinc
