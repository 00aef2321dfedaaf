// Parser for plain text with reasoning and calls between markers: all formats except gpt-oss. A CallReader parses the
// inside of a call. A malformed call becomes content, from its opening to its closing marker.
#pragma once

#include <string>
#include <vector>

#include "text/output_parser.h"

namespace zinc {

struct TaggedSyntax {
  ThinkingMarkers thinking = {};
  bool reasoning_anywhere = false;               // else only at the start, after reasoning or after a call
  std::vector<std::string_view> call_open = {};  // opening markers of a call
  std::string_view call_close = {};              // ends a malformed call; empty: end of output
  std::vector<std::string_view> dropped = {};    // markers to drop
  std::string_view separators = {};              // bytes ignored between calls, besides white space
};

class TaggedParser : public OutputParser {
 public:
  TaggedParser(TaggedSyntax syntax, const ParserContext& context, std::unique_ptr<CallReader> calls);

  void push(std::string_view text) override;
  void finish() override;

 private:
  enum class State : uint8_t { reasoning_start, reasoning, boundary, text, call, malformed };
  enum class Boundary : uint8_t { start, reasoning, call };

  // Each consumes from the front of `rest` and returns false if it needs more text.
  bool reasoning_start(std::string_view& rest);
  bool reasoning(std::string_view& rest);
  bool boundary(std::string_view& rest);
  bool text(std::string_view& rest);
  bool call(std::string_view& rest);
  bool malformed(std::string_view& rest);

  bool step(std::string_view& rest);
  void enter(std::string_view marker);
  void enter_boundary(Boundary boundary);
  void flush_whitespace();
  void fail_call();
  void write_reasoning(std::string_view text);
  void warn_of_call_in_reasoning();

  const TaggedSyntax syntax_;
  MessageWriter& writer_;
  std::unique_ptr<CallReader> call_reader_;
  std::vector<std::string_view> text_markers_, boundary_markers_;
  State state_;
  Boundary boundary_ = Boundary::start;
  bool may_reopen_;         // the prompt has opened the reasoning: the model may repeat the marker
  std::string pending_;     // bytes that may become a marker
  std::string whitespace_;  // white space since the boundary: dropped or emitted before the next text
  std::string reasoning_;   // the open reasoning text, if the request has tools
  std::string raw_;         // uncommitted text of the call being read
};

}  // namespace zinc
