// Turns a model's output into a message, while it streams or as a whole. push() takes bytes cut anywhere, even inside a
// character; invalid UTF-8 becomes U+FFFD. Only what may still become a marker is held back; the time is linear in the
// text. Never fails: what cannot be read as a call is content, with a warning. One parser per output; one thread.
#pragma once

#include <optional>

#include "base/result.h"
#include "text/message.h"
#include "text/tool_format.h"

namespace zinc {

struct ParserOptions {
  ToolSchemas tools = {};  // none: what looks like a call is text
  bool thinking = true;    // the request wants thoughts
  // Whether the prompt ended inside the thought (prompt_opens_reasoning); else the format's habit and `thinking`
  // decide.
  std::optional<bool> reasoning_open = {};
  // Announce a call only once it is whole: no CallFailed is ever seen, at the price of arguments that do not stream.
  bool whole_calls = false;
};

class MessageParser {
 public:
  MessageParser(const ToolFormat& format, ParserOptions options);
  MessageParser(MessageParser&&) noexcept;
  MessageParser& operator=(MessageParser&&) noexcept;
  ~MessageParser();

  std::vector<Delta> push(std::string_view bytes);
  std::vector<Delta> finish();  // the output is over: called once, last

 private:
  struct State;
  std::vector<Delta> take();
  std::unique_ptr<State> state_;
};

// The message of a whole output, or of one that is not finished yet (`is_partial`).
Message parse_message(const ToolFormat& format, const ParserOptions& options, std::string_view output,
                      bool is_partial = false);

}  // namespace zinc
