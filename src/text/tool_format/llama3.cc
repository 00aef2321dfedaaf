// Llama 3.1 to 3.3: a bare JSON object {"name": ..., "parameters": {...}}, also after text, after <|python_tag|>, and
// several with ';' between. Other objects and built-in calls in Python syntax stay text, since a JSON answer looks
// the same.
#include <utility>

#include "text/json_call_reader.h"
#include "text/marker_search.h"
#include "text/tagged_parser.h"
#include "text/tool_format.h"

namespace zinc {
namespace {

constexpr std::string_view kPythonTag = "<|python_tag|>";

class BareJsonReader : public CallReader {
 public:
  void begin(std::string_view marker, bool at_boundary) override {
    // Inside running text only a known function name distinguishes a call from an example.
    object_.begin({.strict = true, .known_only = !at_boundary});
    brace_pending_ = marker == "{";
  }

  Step push(char c, MessageWriter& writer) override {
    if (std::exchange(brace_pending_, false)) object_.push('{', writer);
    return object_.push(c, writer);
  }

  bool finish(MessageWriter& writer) override {
    if (!object_.may_end()) return false;
    writer.warn(WarningCode::missing_end, "the JSON object of a tool call was not closed");
    return true;
  }

  bool is_certain() const override { return object_.was_started(); }

 private:
  JsonCallReader object_;
  bool brace_pending_ = false;  // the marker is the first byte of the object
};

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  TaggedSyntax syntax{.call_open = {"{", kPythonTag}, .separators = ";"};
  return std::make_unique<TaggedParser>(std::move(syntax), context, std::make_unique<BareJsonReader>());
}

}  // namespace

extern const ToolFormat k_tool_format_llama3 = {
    .name = "llama3",
    .template_has = {"<|start_header_id|>", "\"parameters\""},
    .template_lacks = {"<tool_call>", "<function=", ">>>"},
    .calls = {.open = "{\"name\": \"", .before_arguments = "\", \"parameters\": ", .close = "}", .separator = "; "},
    .make_parser = make_parser,
};

}  // namespace zinc
