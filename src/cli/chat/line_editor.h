// Lines typed into a terminal, with editing, history and completion: libedit (docs/adr/0011). Text pasted in one go
// stays one message, newlines and all. The terminal is as it was whenever read_line() is not running.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/chat/message_input.h"

namespace zinc {

class LineEditor final : public LineSource {
 public:
  // `words` are what Tab completes at the start of a line.
  static Result<std::unique_ptr<LineEditor>> create(std::vector<std::string> words);
  ~LineEditor() override;
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Result<Input> read_line(const std::string& prompt) override;
  void remember(const std::string& message) override;

 private:
  struct State;
  explicit LineEditor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace zinc
