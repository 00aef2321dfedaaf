// Mistral up to Small 3.1: [TOOL_CALLS][{"name": ..., "arguments": {...}, "id": "..."}, ...].
#include "text/json_call_reader.h"
#include "text/marker_search.h"
#include "text/tagged_parser.h"
#include "text/tool_format.h"

namespace zinc {
namespace {

class JsonListReader : public CallReader {
 public:
  void begin(std::string_view, bool) override {
    at_ = At::open;
    object_.begin({});
  }

  Step push(char c, MessageWriter& writer) override {
    if (at_ == At::element) {
      const Step step = object_.push(c, writer);
      if (step == Step::done) return go(At::between);
      return step;
    }
    if (is_json_space(c)) return Step::more;
    if (at_ == At::open) return c == '[' ? go(At::element) : Step::failed;
    if (c == ']') return Step::done;
    if (c != ',') return Step::failed;
    object_.begin({});
    return go(At::element);
  }

  bool finish(MessageWriter& writer) override {
    if (at_ != At::between && !object_.may_end()) return false;
    writer.warn(WarningCode::missing_end, "the list of tool calls was not closed");
    return true;
  }

 private:
  enum class At : uint8_t { open, element, between };
  Step go(At at) {
    at_ = at;
    return Step::more;
  }

  At at_ = At::open;
  JsonCallReader object_;
};

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  TaggedSyntax syntax{.call_open = {"[TOOL_CALLS]"}};
  return std::make_unique<TaggedParser>(std::move(syntax), context, std::make_unique<JsonListReader>());
}

}  // namespace

extern const ToolFormat k_tool_format_mistral_nemo = {
    .name = "mistral-nemo",
    .template_has = {"[TOOL_CALLS]"},
    .template_lacks = {"[ARGS]"},
    .call_open = "[TOOL_CALLS]",
    .make_parser = make_parser,
};

}  // namespace zinc
