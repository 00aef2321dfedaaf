// The two interfaces of a tool format. OutputParser: parses the complete output. CallReader: parses one call, for
// formats with calls between markers (text/tagged_parser.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "text/message_writer.h"

namespace zinc {

struct ThinkingMarkers {
  std::string_view open, close;             // empty: the family has no reasoning
  std::string_view before_answer = "\n\n";  // between the closing marker and the content
  // The same if a tool call may come instead of content; empty: as before_answer.
  std::string_view before_answer_or_call = {};
  std::string_view early_end = {};  // before the closing marker, if the token budget ends the reasoning
};
// The sentence Qwen3 was trained with for reasoning that ends early.
constexpr ThinkingMarkers kThinkTags = {
    .open = "<think>",
    .close = "</think>",
    .early_end =
        "Considering the limited time by the user, I have to give the solution based on the thinking directly now.\n"};

struct ParserContext {
  MessageWriter& writer;  // outlives the parser
  bool reasoning_open;    // the prompt ended inside the reasoning
};

class OutputParser {
 public:
  virtual ~OutputParser() = default;
  virtual void push(std::string_view text) = 0;  // ends at a UTF-8 character boundary
  virtual void finish() = 0;                     // end of output; the last call
};

class CallReader {
 public:
  enum class Step : uint8_t { more, done, failed };

  virtual ~CallReader() = default;

  // A call starts with `marker`. `at_boundary`: only white space since the start, the reasoning or another call.
  virtual void begin(std::string_view marker, bool at_boundary) = 0;

  // `done`: the byte ends the call. `failed`: the byte is unexpected and was not consumed.
  virtual Step push(char c, MessageWriter& writer) = 0;

  // End of output inside the call. True: the call was complete and has been ended.
  virtual bool finish(MessageWriter& writer) = 0;

  // Whether the text so far can only be a call, so that a failure causes a warning.
  virtual bool is_certain() const { return true; }
};

}  // namespace zinc
