// How one family of models writes thoughts and tool calls. One file per syntax in text/tool_format/ defines its record;
// the folder listing makes kToolFormats. A format is chosen by what the model's chat template contains.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "text/output_parser.h"

namespace zinc {

struct ToolFormat {
  std::string_view name;                                // "qwen3"
  std::array<std::string_view, 3> template_has = {};    // all of these, and
  std::array<std::string_view, 3> template_lacks = {};  // none of these mark a template of this family; "" is ignored
  std::string_view architecture = {};                   // decides where a model has no template; empty: never
  ThinkingMarkers thinking = {};
  bool reasoning_starts_open = false;                  // the prompt of a thinking model ends inside the thought
  std::string_view call_open = {};                     // what a call begins with, where that can be nothing else
  std::array<std::string_view, 2> content_after = {};  // texts that stand before what is no thought, in this order
  std::unique_ptr<OutputParser> (*make_parser)(const ParserContext& context);
};

extern const ToolFormat* const kToolFormats[];  // every format, ended by nullptr
extern const ToolFormat k_tool_format_plain;    // text and <think>, no calls

const ToolFormat* find_tool_format(std::string_view name);  // nullptr: unknown
std::string tool_format_names();                            // "gemma4, gpt-oss, ..."

// The format of the model with this template; k_tool_format_plain where none is recognised.
const ToolFormat& detect_tool_format(std::string_view template_source, std::string_view architecture);

// Whether a rendered prompt ends inside a thought that the model will go on writing.
bool prompt_opens_reasoning(const ToolFormat& format, std::string_view prompt);

}  // namespace zinc
