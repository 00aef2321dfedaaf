// Reads calls of the form <function=name><parameter=key>\nvalue\n</parameter></function></tool_call> into JSON
// arguments. A value's type comes from the function's schema: text stays text and streams, objects and arrays stream as
// the JSON they are, the rest waits for its end. A closing tag inside a value only ends it if another tag of the call
// follows.
#pragma once

#include <set>
#include <string>

#include "text/json_scanner.h"
#include "text/marker_search.h"
#include "text/output_parser.h"
#include "text/tagged_parser.h"

namespace zinc {

class XmlCallReader : public CallReader {
 public:
  void begin(std::string_view marker, bool at_boundary) override;
  Step push(char c, MessageWriter& writer) override;
  bool finish(MessageWriter& writer) override;
  bool is_certain() const override { return is_wrapped_ || is_announced_; }

 private:
  enum class At : uint8_t { tag, function_name, parameter_name, value_start, text_value, json_value, after_json };

  Step go(At at) {
    at_ = at;
    return Step::more;
  }
  Step tag_byte(char c, MessageWriter& writer);
  Step name_byte(char c, MessageWriter& writer);
  Step value_start_byte(char c, MessageWriter& writer);
  Step text_byte(char c, MessageWriter& writer);
  Step json_byte(char c, MessageWriter& writer);

  bool begin_function(MessageWriter& writer);
  bool begin_parameter(MessageWriter& writer);
  void write_value(std::string_view text, MessageWriter& writer);
  void end_value(MessageWriter& writer);
  Step enter_tag(std::string_view tag, MessageWriter& writer);
  bool end_function(MessageWriter& writer);

  At at_ = At::tag;
  bool is_wrapped_ = true;     // the call began with <tool_call>, not with <function= alone
  bool is_announced_ = false;  // start_call was written
  bool is_ended_ = false;
  bool is_fresh_ = false;  // nothing of the value was read yet
  bool streams_ = false;   // the value is text by its schema and is passed on at once
  JsonTypes types_ = 0;    // of the value
  LiteralMatch tag_;
  JsonScanner scanner_;
  std::string function_, parameter_;
  std::string value_;  // what of the value waits for its end
  std::string held_;   // may still be the end of the value
  std::set<std::string, std::less<>> seen_;
};

// The markers around such calls; <function= alone opens one too, as models at times forget the outer tag.
TaggedSyntax xml_call_syntax();

}  // namespace zinc
