#include "text/message.h"

#include <utility>

#include "base/json.h"

namespace zinc {
namespace {

constexpr std::string_view kWarningNames[] = {"malformed_call", "unknown_function", "missing_end",
                                              "ignored_text",   "value_type",       "no_channel"};

struct Appender {
  Message& message;

  void operator()(const ContentDelta& delta) const { message.content += delta.text; }
  void operator()(const ReasoningDelta& delta) const { message.reasoning_content += delta.text; }
  void operator()(const CallStart& delta) const { message.tool_calls.push_back({delta.name, delta.id, "", false}); }
  void operator()(const CallId& delta) const { message.tool_calls.back().id = delta.id; }
  void operator()(const ArgumentsDelta& delta) const { message.tool_calls.back().arguments += delta.text; }
  void operator()(const CallEnd&) const { message.tool_calls.back().complete = true; }
  void operator()(const CallFailed&) const { message.tool_calls.pop_back(); }
  void operator()(const ParseWarning& warning) const { message.warnings.push_back(warning); }
};

json::object call_json(const ToolCall& call) {
  json::object out{{"name", call.name}};
  Result<json::value> arguments = fail(ErrorCode::invalid_input, "not complete");
  if (call.complete) arguments = parse_json(call.arguments);
  if (arguments.ok()) {
    out["arguments"] = std::move(arguments.value());
  } else {
    out["arguments_partial"] = call.arguments;
  }
  if (!call.id.empty()) out["id"] = call.id;
  return out;
}

}  // namespace

std::string_view warning_name(WarningCode code) { return kWarningNames[static_cast<size_t>(code)]; }

void append_delta(Message& message, const Delta& delta) { std::visit(Appender{message}, delta); }

std::string message_json(const Message& message) {
  json::array calls;
  for (const ToolCall& call : message.tool_calls) calls.emplace_back(call_json(call));
  json::array warnings;
  for (const ParseWarning& warning : message.warnings) {
    warnings.emplace_back(json::object{{"code", warning_name(warning.code)}, {"message", warning.message}});
  }
  return to_json(json::object{{"content", message.content},
                              {"reasoning_content", message.reasoning_content},
                              {"tool_calls", std::move(calls)},
                              {"warnings", std::move(warnings)}});
}

}  // namespace zinc
