// Reads one message from one or more lines: a backslash at the end of a line continues it; """ at the start opens a
// multi-line text up to a line that ends with """. Pasted text with newlines is taken verbatim.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace zinc {

enum class InputKind : uint8_t {
  text,
  interrupted,  // Ctrl-C; `text` is what it dropped
  end,          // Ctrl-D or end of input
};
struct Input {
  InputKind kind = InputKind::text;
  std::string text = {};
  bool is_quoted = false;  // in """, or pasted: verbatim, never a command
};

// A source of lines. line_editor.h implements it for terminals.
class LineSource {
 public:
  virtual ~LineSource() = default;
  // Without the final newline. A line with inner newlines was pasted or comes from the history.
  virtual Result<Input> read_line(const std::string& prompt) = 0;
  virtual void add_to_history(const std::string& message) = 0;  // for the arrow keys
};

enum class Prompts : uint8_t { none, to_output, to_errors };

// Unedited lines of standard input, with prompts for a dumb terminal or redirected standard output.
class PlainLines final : public LineSource {
 public:
  explicit PlainLines(Prompts prompts) : prompts_(prompts) {}
  Result<Input> read_line(const std::string& prompt) override;
  void add_to_history(const std::string&) override {}

 private:
  Prompts prompts_;
};

// An interrupted message is dropped; a message cut off by the end of input is returned.
Result<Input> read_message(LineSource& lines, const std::string& prompt);

// The input that read_message() parses as this message, for the history.
std::string as_typed(const Input& message);

}  // namespace zinc
