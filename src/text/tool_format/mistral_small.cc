// Mistral from Small 3.2 on: [TOOL_CALLS]name[CALL_ID]id[ARGS]{...}, once per call; the id may be missing.
#include "text/json_call_reader.h"
#include "text/marker_search.h"
#include "text/tagged_parser.h"
#include "text/tool_format.h"

namespace zinc {
namespace {

constexpr std::string_view kCallId = "[CALL_ID]", kArguments = "[ARGS]";
constexpr size_t kMaxHeadBytes = 512;  // name and id

class NameArgumentsReader : public CallReader {
 public:
  void begin(std::string_view, bool) override {
    head_.clear();
    in_head_ = true;
  }

  Step push(char c, MessageWriter& writer) override { return in_head_ ? head_byte(c) : arguments_.push(c, writer); }

  bool finish(MessageWriter&) override { return false; }

 private:
  Step head_byte(char c) {
    if (head_.size() >= kMaxHeadBytes || is_json_space(c) || c == '{') return Step::failed;
    head_ += c;
    if (!head_.ends_with(kArguments)) return Step::more;
    std::string_view head = head_;
    head.remove_suffix(kArguments.size());
    const size_t id_at = head.find(kCallId);
    const std::string_view name = head.substr(0, id_at);
    arguments_.begin(name, id_at == std::string_view::npos ? "" : head.substr(id_at + kCallId.size()));
    in_head_ = false;
    return name.empty() ? Step::failed : Step::more;
  }

  std::string head_;
  bool in_head_ = true;
  JsonArgumentsReader arguments_;
};

std::unique_ptr<OutputParser> make_parser(const ParserContext& context) {
  TaggedSyntax syntax{.call_open = {"[TOOL_CALLS]"}};
  return std::make_unique<TaggedParser>(std::move(syntax), context, std::make_unique<NameArgumentsReader>());
}

}  // namespace

extern const ToolFormat k_tool_format_mistral_small = {
    .name = "mistral-small-3.2",
    .template_has = {"[TOOL_CALLS]", "[ARGS]"},
    .call_open = "[TOOL_CALLS]",
    .calls = {.open = "[TOOL_CALLS]", .before_arguments = "[ARGS]"},
    .make_parser = make_parser,
};

}  // namespace zinc
