// Parser for output that is plain text with a thought and calls set off by markers: all formats but gpt-oss. The inside
// of a call is read by a CallReader. A call that fails to be read becomes content, from its marker to its closing mark.
#pragma once

#include <string>
#include <vector>

#include "text/output_parser.h"

namespace zinc {

struct TaggedSyntax {
  ThinkingMarkers thinking = {};
  bool think_anywhere = false;                   // else only where a message, or what follows a thought or call, begins
  std::vector<std::string_view> call_open = {};  // a call may begin with any of these
  std::string_view call_close = {};              // ends the raw text of a malformed call; empty: it goes on to the end
  std::vector<std::string_view> dropped = {};    // markers without a meaning for the message
  std::string_view separators = {};              // bytes between calls that mean nothing, besides white space
};

class TaggedParser : public OutputParser {
 public:
  TaggedParser(TaggedSyntax syntax, const ParserContext& context, std::unique_ptr<CallReader> calls);

  void push(std::string_view text) override;
  void finish() override;

 private:
  enum class State : uint8_t { thought_start, thought, boundary, text, call, malformed };
  enum class Boundary : uint8_t { start, thought, call };

  // Each consumes from the front of `rest` and returns false when it has to wait for more text.
  bool thought_start(std::string_view& rest);
  bool thought(std::string_view& rest);
  bool boundary(std::string_view& rest);
  bool text(std::string_view& rest);
  bool call(std::string_view& rest);
  bool malformed(std::string_view& rest);

  bool step(std::string_view& rest);
  void enter(std::string_view marker);
  void enter_boundary(Boundary boundary);
  void flush_gap();
  void fail_call();
  void think(std::string_view text);
  void warn_of_call_in_thought();

  const TaggedSyntax syntax_;
  MessageWriter& writer_;
  std::unique_ptr<CallReader> calls_;
  std::vector<std::string_view> text_markers_, boundary_markers_;
  State state_;
  Boundary boundary_ = Boundary::start;
  bool may_reopen_;      // the prompt has opened the thought: the model may repeat the marker
  std::string pending_;  // bytes that may still become a marker
  std::string gap_;      // white space since the boundary: separates, or leads the text that follows
  std::string thought_;  // the open one, where there are tools that it may call
  std::string raw_;      // text of the call being read, as far as it is not settled
};

}  // namespace zinc
