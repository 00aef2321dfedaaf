// The two seams a tool format is built from. OutputParser: the whole of a model's output. CallReader: the inside of one
// call, for formats that are text with marked calls in between (text/tagged_parser.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "text/message_writer.h"

namespace zinc {

struct ThinkingMarkers {
  std::string_view open, close;  // empty: the family does not think
};
constexpr ThinkingMarkers kThinkTags = {"<think>", "</think>"};

struct ParserContext {
  MessageWriter& writer;  // outlives the parser
  bool reasoning_open;    // the prompt ended inside the thought
};

class OutputParser {
 public:
  virtual ~OutputParser() = default;
  virtual void push(std::string_view text) = 0;  // whole UTF-8 characters
  virtual void finish() = 0;                     // the output is over; called once, last
};

class CallReader {
 public:
  enum class Step : uint8_t { more, done, failed };

  virtual ~CallReader() = default;

  // A call opens with `marker`. `at_boundary`: nothing but white space since the start, a thought or another call.
  virtual void begin(std::string_view marker, bool at_boundary) = 0;

  // `done`: the byte was the last of the call. `failed`: the byte does not belong here and was not consumed.
  virtual Step push(char c, MessageWriter& writer) = 0;

  // The output ended inside the call. True: what came is a whole call, and it was ended.
  virtual bool finish(MessageWriter& writer) = 0;

  // Whether what was read so far can only be meant as a call, so that failing is worth a warning.
  virtual bool is_certain() const { return true; }
};

}  // namespace zinc
