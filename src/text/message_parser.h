// Parses a model's output into a message, streamed or complete. push() accepts bytes split anywhere, even inside a
// character; invalid UTF-8 becomes U+FFFD. Holds back only text that may become a marker; linear time. Never fails: a
// malformed call becomes content, with a warning. One parser per output; one thread.
#pragma once

#include <optional>

#include "base/result.h"
#include "text/message.h"
#include "text/tool_format.h"

namespace zinc {

struct ParserOptions {
  ToolSchemas tools = {};  // empty: calls are not parsed
  bool thinking = true;    // the request has thinking enabled
  // Whether the prompt ended inside the reasoning (prompt_opens_reasoning); nullopt: the format's default if
  // `thinking`.
  std::optional<bool> reasoning_open = {};
  // Emit a call only when it is complete: never emits CallFailed, but arguments are not streamed.
  bool buffer_calls = false;
};

class MessageParser {
 public:
  MessageParser(const ToolFormat& format, ParserOptions options);
  MessageParser(MessageParser&&) noexcept;
  MessageParser& operator=(MessageParser&&) noexcept;
  ~MessageParser();

  std::vector<Delta> push(std::string_view bytes);
  std::vector<Delta> finish();  // end of output; the last call

 private:
  struct State;
  std::vector<Delta> take();
  std::unique_ptr<State> state_;
};

// Parses a complete output, or a prefix of one (`is_partial`).
Message parse_message(const ToolFormat& format, const ParserOptions& options, std::string_view output,
                      bool is_partial = false);

}  // namespace zinc
