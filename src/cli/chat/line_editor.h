// Line input from a terminal with editing, history and completion, through libedit (docs/adr/0011). Pasted text stays
// one message including its newlines. The terminal mode is changed only while read_line() runs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cli/chat/completion.h"
#include "cli/chat/message_input.h"

namespace zinc {

class LineEditor final : public LineSource {
 public:
  // The completion of a line up to the cursor: Tab inserts what all candidates have in common, and lists them if there
  // are several.
  using Complete = std::function<Completion(std::string_view line)>;
  static Result<std::unique_ptr<LineEditor>> create(Complete complete);
  ~LineEditor() override;
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  Result<Input> read_line(const std::string& prompt) override;
  void add_to_history(const std::string& message) override;

 private:
  struct State;
  explicit LineEditor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace zinc
