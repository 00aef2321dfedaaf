#include "chat/structured_output.h"

#include <algorithm>

#include "constrain/gbnf.h"
#include "constrain/json_schema.h"
#include "constrain/output_grammar.h"
#include "constrain/regex.h"

namespace zinc {
namespace {

using Kind = ResponseFormat::Kind;

Result<Grammar> content_grammar(const ResponseFormat& format) {
  switch (format.kind) {
    case Kind::json_schema:
      return json_schema_grammar(format.schema);
    case Kind::grammar:
      return parse_gbnf(format.grammar);
    case Kind::regex:
      return regex_text_grammar(format.grammar);
    default:
      return json_object_grammar();
  }
}

std::string content_key(const ResponseFormat& format) {
  switch (format.kind) {
    case Kind::json_schema:
      return "schema " + to_json(format.schema);
    case Kind::grammar:
      return "grammar " + format.grammar;
    case Kind::regex:
      return "regex " + format.grammar;
    case Kind::json_object:
      return "object";
    case Kind::text:
      break;
  }
  return "text";
}

template <class Names>
bool has(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != std::ranges::end(names);
}

const json::object& function_of(const json::value& tool) { return tool.at("function").get_object(); }

// The tools that may be called.
std::vector<CallableTool> callable_tools(const ChatRequest& request) {
  std::vector<CallableTool> out;
  if (request.tools.is_null()) return out;
  for (const json::value& tool : request.tools.get_array()) {
    const json::object& function = function_of(tool);
    const std::string name(function.at("name").get_string());
    if (!request.tool_choice.names.empty() && !has(request.tool_choice.names, name)) continue;
    out.push_back(
        {.name = name, .parameters = function.if_contains("parameters"), .is_strict = has(request.strict_tools, name)});
  }
  return out;
}

std::optional<RequestError> check_tool_choice(const ChatRequest& request, const ToolSchemas& tools) {
  const ToolChoice& choice = request.tool_choice;
  if (choice.requires_call && tools.empty()) {
    return invalid_field("tool_choice", "'tool_choice' requires a call, but the request has no 'tools'");
  }
  for (const std::string& name : choice.names) {
    if (!tools.has_function(name)) {
      return invalid_field("tool_choice", "'tool_choice' names the tool '{}', which is not in 'tools'",
                           name.substr(0, 100));
    }
  }
  return {};
}

std::optional<RequestError> check_continuation(const ChatRequest& request) {
  if (!request.continue_final_message) return {};
  const ResponseFormat& format = request.response_format;
  if (format.kind != Kind::text) {
    return refused_field(format.field, "'{}' cannot be combined with 'continue_final_message'", format.field);
  }
  if (request.tool_choice.requires_call) {
    return refused_field("tool_choice", "a forced 'tool_choice' cannot be combined with 'continue_final_message'");
  }
  return {};
}

Result<std::shared_ptr<Constraint>> content_constraint(const ChatModel& model, const ResponseFormat& format) {
  if (format.kind == Kind::text) return std::shared_ptr<Constraint>();
  return model.constraints->get(content_key(format), [&] { return content_grammar(format); });
}

// The grammar includes calls, or the markers that a format with channels writes before the content.
bool needs_output_grammar(const ChatModel& model, const ChatRequest& request) {
  const bool has_format = request.response_format.kind != Kind::text;
  if (request.tools.is_null()) return has_format && !model.tool_format->channels.content_open.empty();
  return has_format || request.tool_choice.requires_call || !request.tool_choice.names.empty() ||
         !request.strict_tools.empty();
}

std::string output_key(const ChatModel& model, const ChatRequest& request, const ReasoningPosition& place) {
  const auto names = [](const std::vector<std::string>& list) {
    return to_json(json::array(list.begin(), list.end()));
  };
  return fmt::format("output {} {}{}{}{} {} {} {} {}", model.tool_format->name, request.tool_choice.requires_call,
                     request.allows_parallel_calls(), place.starts_open, place.is_allowed,
                     names(request.tool_choice.names), names(request.strict_tools), to_json(request.tools),
                     content_key(request.response_format));
}

Result<std::shared_ptr<Constraint>> output_constraint(const ChatModel& model, const ChatRequest& request,
                                                      const ToolSchemas& tools, const ReasoningPosition& place) {
  return model.constraints->get(output_key(model, request, place), [&]() -> Result<Grammar> {
    OutputSyntax syntax{.format = *model.tool_format,
                        .tools = callable_tools(request),
                        .tool_schemas = &tools,
                        .allows_parallel_calls = request.allows_parallel_calls(),
                        .starts_in_reasoning = place.starts_open,
                        .may_reason = place.is_allowed};
    if (request.tool_choice.requires_call) {
      syntax.content = OutputSyntax::Content::none;
    } else if (request.response_format.kind != Kind::text) {
      syntax.content = OutputSyntax::Content::grammar;
      ZINC_TRY(grammar, content_grammar(request.response_format));
      syntax.content_grammar = std::move(grammar);
    }
    return output_grammar(std::move(syntax), *model.constraints->trie());
  });
}

void set_grammar(std::shared_ptr<Constraint> grammar, ChatRequest& request) {
  request.options.constraint.grammar = std::move(grammar);
  if (!request.options.constraint.grammar) return;
  const std::vector<std::string>& unenforced = request.options.constraint.grammar->unenforced();
  request.notes.insert(request.notes.end(), unenforced.begin(), unenforced.end());
}

}  // namespace

std::optional<RequestError> constrain_completion(const ChatModel& model, ChatRequest& request) {
  const ResponseFormat& format = request.response_format;
  const Result<std::shared_ptr<Constraint>> found = content_constraint(model, format);
  if (!found.ok()) return invalid_field(format.field, "'{}': {}", format.field, found.error().message);
  set_grammar(found.value(), request);
  return {};
}

std::optional<RequestError> constrain_chat(const ChatModel& model, ChatRequest& request, const ToolSchemas& tools,
                                           const ReasoningPosition& place) {
  if (std::optional<RequestError> error = check_tool_choice(request, tools)) return error;
  if (std::optional<RequestError> error = check_continuation(request)) return error;
  if (!needs_output_grammar(model, request)) {
    if (std::optional<RequestError> error = constrain_completion(model, request)) return error;
  } else {
    const Result<std::shared_ptr<Constraint>> found = output_constraint(model, request, tools, place);
    if (!found.ok()) {
      const std::string& message = found.error().message;
      const bool is_tool = message.starts_with("parameters of tool");
      const std::string field =
          is_tool || request.response_format.kind == Kind::text ? "tools" : request.response_format.field;
      return invalid_field(field, "'{}': {}", field, message);
    }
    set_grammar(found.value(), request);
  }
  exempt_reasoning(*model.tool_format, model.tokenizer, place, request.options.constraint);
  return {};
}

}  // namespace zinc
