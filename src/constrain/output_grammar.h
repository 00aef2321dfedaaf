// The grammar of an output with tool calls, in the syntax of the model's family: content, calls, or either. Reasoning
// is part of it only in formats with channels; elsewhere it comes before (engine/output_constraint.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "constrain/grammar.h"
#include "constrain/token_trie.h"
#include "text/tool_format.h"
#include "text/tool_schema.h"

namespace zinc {

struct CallableTool {
  std::string name;
  const json::value* parameters = nullptr;  // JSON schema of the arguments; nullptr: any object
  // A schema that cannot be enforced in full is an error; otherwise Grammar::unenforced names what is not enforced, and
  // with unsupported keywords the arguments may be any object.
  bool is_strict = false;
};

struct OutputSyntax {
  const ToolFormat& format;
  enum class Content : uint8_t {
    none,      // a call is required
    any_text,  // also before a call
    grammar,
  } content = Content::any_text;
  std::optional<Grammar> content_grammar = {};
  std::vector<CallableTool> tools = {};
  const ToolSchemas* tool_schemas = nullptr;  // of the same tools; may be nullptr if there are none
  bool allows_parallel_calls = true;
  bool starts_in_reasoning = false, may_reason = true;  // for formats with channels
};

// REQUIRES: there are tools, or content other than any text. A strict tool's error names the tool.
Result<Grammar> output_grammar(OutputSyntax syntax, const TokenTrie& vocabulary);

}  // namespace zinc
