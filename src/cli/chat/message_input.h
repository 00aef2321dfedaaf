// One message from one or more lines: a backslash at the end of a line goes on in the next, """ opens a text that ends
// with """ and may hold anything.
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
  bool is_quoted = false;  // in """: never a command
};

// Where lines come from. An implementation for terminals is line_editor.h.
class LineSource {
 public:
  virtual ~LineSource() = default;
  virtual Result<Input> read_line(const std::string& prompt) = 0;  // without its newline
  virtual void remember(const std::string& message) = 0;           // for the arrow keys
};

// Lines of standard input as they are. `shows_prompts`: it is a terminal that cannot move its cursor.
class PlainLines final : public LineSource {
 public:
  explicit PlainLines(bool shows_prompts) : shows_prompts_(shows_prompts) {}
  Result<Input> read_line(const std::string& prompt) override;
  void remember(const std::string&) override {}

 private:
  bool shows_prompts_;
};

// A message that was begun and is interrupted is dropped; one that the end cuts off is taken as it is.
Result<Input> read_message(LineSource& lines, const std::string& prompt);

}  // namespace zinc
