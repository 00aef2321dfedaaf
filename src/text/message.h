// What a model's output means: text, thought and tool calls; and the deltas a message grows by while it streams.
// Deltas only ever append. The one exception is spelled out: CallFailed says that the call announced last turned out
// malformed; it is no call, and its raw text follows as ContentDelta.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace zinc {

enum class WarningCode : uint8_t {
  malformed_call,    // a call could not be read; its text is in the content, or in the thought that it stands in
  unknown_function,  // a well-formed call of a function that was not offered
  missing_end,       // the call is whole, but its closing mark never came
  ignored_text,      // something inside a call's markup that has no meaning; quoted in the message
  value_type,        // a parameter's text is no value of its schema type; it was passed on as text
  no_channel,        // text outside of any channel (gpt-oss)
};
std::string_view warning_name(WarningCode code);

struct ParseWarning {
  WarningCode code;
  std::string message;
};

struct ToolCall {
  std::string name;
  std::string id;         // as the model wrote it; empty: the format has none, or it has not come yet
  std::string arguments;  // JSON text of an object; a prefix of it while !complete
  bool complete = false;
};

struct Message {
  std::string content;
  std::string reasoning_content;
  std::vector<ToolCall> tool_calls;
  std::vector<ParseWarning> warnings;
};

// Every text is whole UTF-8 characters. call_idx counts announced calls and is never reused, not even after CallFailed.
struct ContentDelta {
  std::string text;
};
struct ReasoningDelta {
  std::string text;
};
struct CallStart {
  int call_idx;
  std::string name;
  std::string id;  // may be empty and follow as CallId
};
struct CallId {
  int call_idx;
  std::string id;
};
struct ArgumentsDelta {
  int call_idx;
  std::string text;  // joined, the deltas of one call are the JSON text of its arguments
};
struct CallEnd {
  int call_idx;  // its arguments are a valid JSON object
};
struct CallFailed {
  int call_idx;
};
using Delta =
    std::variant<ContentDelta, ReasoningDelta, CallStart, CallId, ArgumentsDelta, CallEnd, CallFailed, ParseWarning>;

// Grows `message` by one delta.
void append_delta(Message& message, const Delta& delta);

// {"content", "reasoning_content", "tool_calls": [{"name", "arguments" or "arguments_partial", "id"?}], "warnings"}.
std::string message_json(const Message& message);

}  // namespace zinc
