#include "text/tagged_json_reader.h"

namespace zinc {

void TaggedJsonReader::begin(std::string_view, bool) {
  object_.begin({});
  close_.expect(kTaggedCallClose);
  in_object_ = true;
}

CallReader::Step TaggedJsonReader::push(char c, MessageWriter& writer) {
  if (in_object_) {
    const Step step = object_.push(c, writer);
    if (step == Step::more) return step;
    in_object_ = false;
    if (step == Step::done) return Step::more;
    // The outer brace is missing, but the call is complete.
    if (c != '<' || !object_.may_end()) return Step::failed;
    writer.warn(WarningCode::missing_end, "the JSON object of a tool call was not closed");
  }
  const LiteralMatcher::Step step = close_.push(c);
  if (step == LiteralMatcher::Step::more) return Step::more;
  return step == LiteralMatcher::Step::done ? Step::done : Step::failed;
}

bool TaggedJsonReader::finish(MessageWriter& writer) {
  if (in_object_ && !object_.may_end()) return false;
  writer.warn(WarningCode::missing_end, "the output ended before </tool_call>");
  return true;
}

}  // namespace zinc
