// A parsed model output: content, reasoning and tool calls; and the deltas of a streamed message.
// Deltas only append, with one exception: CallFailed retracts the last started call, which turned out to be malformed;
// its raw text follows as ContentDelta.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace zinc {

enum class WarningCode : uint8_t {
  malformed_call,    // a call could not be parsed; its text is in the content or the reasoning
  unknown_function,  // a well-formed call of a function that is not in the request's tools
  missing_end,       // the call is complete, but its closing marker is missing
  ignored_text,      // meaningless text inside a call's markup; quoted in the message
  value_type,        // a parameter does not match its schema type; passed on as a string
  no_channel,        // text outside of any channel (gpt-oss)
};
std::string_view warning_name(WarningCode code);

struct ParseWarning {
  WarningCode code;
  std::string message;
};

struct ToolCall {
  std::string name;
  std::string id;         // as written by the model; empty: the format has no ids, or not known yet
  std::string arguments;  // JSON text of an object; a prefix of it while !complete
  bool complete = false;
};

struct Message {
  std::string content;
  std::string reasoning_content;
  std::vector<ToolCall> tool_calls;
  std::vector<ParseWarning> warnings;
};

// Texts end at UTF-8 character boundaries. call_idx counts started calls and is never reused, not even after
// CallFailed.
struct ContentDelta {
  std::string text;
};
struct ReasoningDelta {
  std::string text;
};
struct CallStart {
  int call_idx;
  std::string name;
  std::string id;  // if empty, a CallId may follow
};
struct CallId {
  int call_idx;
  std::string id;
};
struct ArgumentsDelta {
  int call_idx;
  std::string text;  // the concatenated deltas of one call are the JSON text of its arguments
};
struct CallEnd {
  int call_idx;  // its arguments are a valid JSON object
};
struct CallFailed {
  int call_idx;
};
using Delta =
    std::variant<ContentDelta, ReasoningDelta, CallStart, CallId, ArgumentsDelta, CallEnd, CallFailed, ParseWarning>;

// Applies one delta to `message`.
void append_delta(Message& message, const Delta& delta);

// {"content", "reasoning_content", "tool_calls": [{"name", "arguments" or "arguments_partial", "id"?}], "warnings"}.
std::string message_json(const Message& message);

}  // namespace zinc
