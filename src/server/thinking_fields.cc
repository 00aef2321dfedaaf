// Request fields that switch thinking, choose its effort or limit its tokens, by the names of every API.
#include "server/request_fields.h"

namespace zinc {
namespace {

constexpr FieldDoc kThinkingDocs[] = {
    {"reasoning_effort", "string",
     "none switches thinking off; minimal, low, medium, high, xhigh and max switch it on. A model without that effort "
     "gets the nearest one; a model that cannot stop thinking gets its lowest effort for none. Default: the "
     "template's."},
    {"enable_thinking", "boolean",
     "Switches thinking on or off, if the model supports it (thinking in /props). Default: the template's."},
    {"think", "", "Alias of enable_thinking; or an effort, as in Ollama."},
    {"thinking", "object",
     "{\"type\": \"enabled\", \"budget_tokens\": N}, adaptive or disabled, as in Anthropic's API."},
    {"reasoning", "object",
     "effort, enabled and max_tokens, as in OpenRouter's API; exclude: true leaves reasoning out of the response."},
    {"include_reasoning", "boolean", "false: leaves reasoning out of the response. Default true."},
    {"thinking_budget", "integer",
     "Maximum reasoning tokens; then the reasoning is closed with the model's own marker and the answer follows. "
     "Default, and -1: no limit."},
    {"thinking_token_budget", "integer", "Alias of thinking_budget, as in vLLM."},
    {"reasoning_budget_tokens", "integer", "Alias of thinking_budget, as in llama.cpp."},
    {"chat_template_kwargs", "object",
     "Further chat template variables, at most 64 KiB; enable_thinking and thinking act as above. They cannot replace "
     "messages, tools or the model's tokens."},
};
constexpr std::string_view kNoEffort = "none";

void read_budget(const FieldReader& fields, std::string_view name, ChatRequest& out) {
  const auto budget = fields.integer(name, -1, std::numeric_limits<int32_t>::max());
  if (budget) out.thinking_budget = static_cast<int>(*budget);
}

void read_template_kwargs(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out) {
  const json::object* kwargs = fields.object("chat_template_kwargs");
  if (!kwargs) return;
  if (const size_t n = to_json(*kwargs).size(); n > limits.template_kwargs_bytes) {
    return fields.errors().add("chat_template_kwargs", "'chat_template_kwargs' has {} bytes; expected at most {}", n,
                               limits.template_kwargs_bytes);
  }
  out.template_kwargs = *kwargs;
  const FieldReader inside(*kwargs, fields.name_of("chat_template_kwargs."), fields.errors());
  for (const std::string_view name : {"enable_thinking", "thinking"}) {
    if (const auto on = inside.boolean(name)) set_thinking(inside, name, *on, out);
  }
}

void read_reasoning_object(const FieldReader& fields, ChatRequest& out) {
  const json::object* reasoning = fields.object("reasoning");
  if (!reasoning) return;
  const FieldReader inside(*reasoning, fields.name_of("reasoning."), fields.errors());
  if (const auto effort = inside.text("effort")) set_effort(inside, "effort", *effort, out);
  if (const auto on = inside.boolean("enabled")) set_thinking(inside, "enabled", *on, out);
  read_budget(inside, "max_tokens", out);
  if (inside.boolean("exclude").value_or(false)) out.include_reasoning = false;
}

}  // namespace

const std::span<const FieldDoc> kThinkingFields = kThinkingDocs;

void set_thinking(const FieldReader& fields, std::string_view name, bool on, ChatRequest& out) {
  if (out.thinking && *out.thinking != on) {
    fields.errors().add(fields.name_of(name),
                        "'{}' switches thinking {}, but another field of the request switches it {}",
                        fields.name_of(name), on ? "on" : "off", on ? "off" : "on");
  }
  out.thinking = on;
}

bool check_effort(const FieldReader& fields, std::string_view name, const std::string& effort) {
  if (effort == kNoEffort || is_thinking_effort(effort)) return true;
  fields.errors().add(fields.name_of(name), "'{}' is '{}'; expected none, minimal, low, medium, high, xhigh or max",
                      fields.name_of(name), effort.substr(0, 40));
  return false;
}

void set_effort(const FieldReader& fields, std::string_view name, const std::string& effort, ChatRequest& out) {
  if (!check_effort(fields, name, effort)) return;
  set_thinking(fields, name, effort != kNoEffort, out);
  if (effort != kNoEffort) out.reasoning_effort = effort;
}

void read_think(const FieldReader& fields, ChatRequest& out) {
  const json::value* think = fields.value("think");
  if (!think) return;
  if (think->is_string()) return set_effort(fields, "think", text_of(think->get_string()), out);
  if (const auto on = fields.boolean("think")) set_thinking(fields, "think", *on, out);
}

void read_thinking_object(const FieldReader& fields, ChatRequest& out) {
  const json::object* thinking = fields.object("thinking");
  if (!thinking) return;
  const FieldReader inside(*thinking, fields.name_of("thinking."), fields.errors());
  const std::string type = inside.required_text("type");
  if (type == "disabled") return set_thinking(inside, "type", false, out);
  if (type != "enabled" && type != "adaptive") {
    return fields.errors().add(inside.name_of("type"), "'{}' is '{}'; expected enabled, adaptive or disabled",
                               inside.name_of("type"), type.substr(0, 40));
  }
  set_thinking(inside, "type", true, out);
  read_budget(inside, "budget_tokens", out);
}

void read_thinking(const FieldReader& fields, const ServerLimits& limits, ChatRequest& out) {
  read_template_kwargs(fields, limits, out);
  if (const auto on = fields.boolean("enable_thinking")) set_thinking(fields, "enable_thinking", *on, out);
  read_think(fields, out);
  read_thinking_object(fields, out);
  if (const auto effort = fields.text("reasoning_effort")) set_effort(fields, "reasoning_effort", *effort, out);
  read_reasoning_object(fields, out);
  if (const auto include = fields.boolean("include_reasoning")) out.include_reasoning = *include;
  for (const std::string_view name : {"thinking_budget", "thinking_token_budget", "reasoning_budget_tokens"})
    read_budget(fields, name, out);
}

}  // namespace zinc
