// One message from one or more lines: a backslash at the end of a line goes on in the next, """ at the start opens a
// text that ends with a line that ends with """ and may hold anything. What was pasted with newlines is taken as it is.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace zinc {

enum class InputKind : uint8_t {
  text,
  interrupted,  // Ctrl-C
  end,          // Ctrl-D, or no more to read
};
struct Input {
  InputKind kind = InputKind::text;
  std::string text = {};
  bool is_quoted = false;  // in """, or pasted: taken as it is, and never a command
};

// Where lines come from. An implementation for terminals is line_editor.h.
class LineSource {
 public:
  virtual ~LineSource() = default;
  // Without its newline. One that has newlines of its own was pasted, or brought back.
  virtual Result<Input> read_line(const std::string& prompt) = 0;
  virtual void remember(const std::string& message) = 0;  // for the arrow keys
};

enum class Prompts : uint8_t { none, to_output, to_errors };

// Lines of standard input as they are. Prompts are for people: at a terminal that cannot move its cursor, or where
// standard output goes elsewhere.
class PlainLines final : public LineSource {
 public:
  explicit PlainLines(Prompts prompts) : prompts_(prompts) {}
  Result<Input> read_line(const std::string& prompt) override;
  void remember(const std::string&) override {}

 private:
  Prompts prompts_;
};

// A message that was begun and is interrupted is dropped; one that the end cuts off is taken as it is.
Result<Input> read_message(LineSource& lines, const std::string& prompt);

// The line that read_message() takes for this very message: for a history.
std::string as_typed(const Input& message);

}  // namespace zinc
