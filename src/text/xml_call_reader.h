// Parses <function=name><parameter=key>\nvalue\n</parameter></function></tool_call> into JSON arguments. A value's type
// comes from the function's schema: strings, objects and arrays are streamed, other values are buffered until their
// end. A closing tag inside a value ends it only if another tag of the call follows.
#pragma once

#include <set>
#include <string>

#include "text/json_scanner.h"
#include "text/marker_search.h"
#include "text/output_parser.h"
#include "text/tagged_parser.h"
#include "text/tool_format.h"

namespace zinc {

class XmlCallReader : public CallReader {
 public:
  void begin(std::string_view marker, bool at_boundary) override;
  Step push(char c, MessageWriter& writer) override;
  bool finish(MessageWriter& writer) override;
  bool is_certain() const override { return is_wrapped_ || is_started_; }

 private:
  enum class State : uint8_t { tag, function_name, parameter_name, value_start, text_value, json_value, after_json };

  Step go(State state) {
    state_ = state;
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

  State state_ = State::tag;
  bool is_wrapped_ = true;   // the call started with <tool_call>, not with a bare <function=
  bool is_started_ = false;  // start_call() was emitted
  bool is_ended_ = false;
  bool is_fresh_ = false;     // no byte of the value was read yet
  bool streams_ = false;      // the value is a string by its schema and is streamed
  ParameterTypes types_ = 0;  // of the value
  LiteralMatcher tag_;
  JsonScanner scanner_;
  std::string function_, parameter_;
  std::string value_;  // buffered value
  std::string held_;   // possible end of the value
  std::set<std::string, std::less<>> seen_;
};

// The markers of such calls; a bare <function= opens one too, since models sometimes omit the outer tag.
TaggedSyntax xml_call_syntax();

// How such calls are generated.
constexpr CallSyntax kXmlCalls = {.open = "<tool_call>\n<function=",
                                  .before_arguments = ">\n",
                                  .close = "</function>\n</tool_call>",
                                  .separator = "\n",
                                  .arguments = CallSyntax::Arguments::parameters};
struct XmlParameterTags {
  std::string_view before_name = "<parameter=", before_value = ">\n", after_value = "\n</parameter>\n",
                   excluded = "</parameter>";
};

}  // namespace zinc
