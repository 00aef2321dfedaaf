// Parses <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>, the syntax of Hermes, Qwen2.5 and Qwen3. Models
// whose template has no tools are asked to write calls like this too (text/generic_tools.h).
#pragma once

#include "text/json_call_reader.h"
#include "text/marker_search.h"
#include "text/tool_format.h"

namespace zinc {

constexpr std::string_view kTaggedCallOpen = "<tool_call>", kTaggedCallClose = "</tool_call>";
constexpr CallSyntax kTaggedJsonCalls = {.open = "<tool_call>\n{\"name\": \"",
                                         .before_arguments = "\", \"arguments\": ",
                                         .close = "}\n</tool_call>",
                                         .separator = "\n"};

class TaggedJsonReader : public CallReader {
 public:
  void begin(std::string_view marker, bool at_boundary) override;
  Step push(char c, MessageWriter& writer) override;
  bool finish(MessageWriter& writer) override;

 private:
  JsonCallReader object_;
  LiteralMatcher close_;
  bool in_object_ = true;
};

}  // namespace zinc
