// How a model family writes reasoning and tool calls. Each file in text/tool_format/ defines one record; CMake lists
// the folder into kToolFormats. The format is detected from the model's chat template.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "text/output_parser.h"

namespace zinc {

// How calls are written, for constrained decoding:
//   begin  open NAME before_arguments ARGUMENTS close  (separator open NAME ...)*  end
struct CallSyntax {
  enum class Arguments : uint8_t {
    json,
    raw_strings,  // an object with strings between quotes of their own and without escapes; names are bare
    parameters,   // as XmlCallReader parses them
  };
  std::string_view begin = {}, open = {}, before_arguments = {}, close = {}, separator = {}, end = {};
  Arguments arguments = Arguments::json;
  std::string_view quote = {};  // of raw strings
  bool is_single = false;       // an output has at most one call
};

// Formats that write each part of an output as a message with a header.
struct ChannelSyntax {
  std::string_view content_open = {};   // header of the content; empty: the format has no channels
  std::string_view preamble_open = {};  // of content before a call
  std::string_view next_message = {};   // after reasoning or a preamble
};

struct ToolFormat {
  std::string_view name;                                // "qwen3"
  std::array<std::string_view, 3> template_has = {};    // contains all of these
  std::array<std::string_view, 3> template_lacks = {};  // and none of these; "" is ignored
  std::string_view architecture = {};                   // used if the model has no template; empty: never
  ThinkingMarkers thinking = {};
  // Values of reasoning_effort that the family was trained with, if its template accepts any text.
  std::array<std::string_view, 3> efforts = {};
  bool reasoning_starts_open = false;  // with thinking on, the prompt ends inside the reasoning
  std::string_view call_open = {};     // unambiguous start of a call; empty: none
  CallSyntax calls = {};
  ChannelSyntax channels = {};
  std::unique_ptr<OutputParser> (*make_parser)(const ParserContext& context);
};

extern const ToolFormat* const kToolFormats[];  // every format, ended by nullptr
extern const ToolFormat k_tool_format_plain;    // text and <think>, no calls

const ToolFormat* find_tool_format(std::string_view name);  // nullptr: unknown
std::string tool_format_names();                            // "gemma4, gpt-oss, ..."

// The format of the model with this template; k_tool_format_plain if none is recognized.
const ToolFormat& detect_tool_format(std::string_view template_source, std::string_view architecture);

// Whether a rendered prompt ends inside reasoning that the model continues.
bool prompt_opens_reasoning(const ToolFormat& format, std::string_view prompt);

}  // namespace zinc
