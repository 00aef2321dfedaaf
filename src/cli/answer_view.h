// Shows one streamed answer. On a terminal: reasoning dimmed, lines wrapped at blanks, control characters replaced. On
// a pipe: only the answer, byte for byte. Or collects both for a report. One per answer; one thread.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/word_wrap.h"
#include "text/message.h"

namespace zinc {

struct AnswerViewOptions {
  bool collects = false;     // nothing is written; answer() and reasoning() have the text
  bool is_terminal = false;  // standard output
  bool has_colors = false;
  int width = 0;  // of the terminal; 0: unknown
};

class AnswerView {
 public:
  explicit AnswerView(const AnswerViewOptions& options) : options_(options), wrap_(options.width) {}

  void show(const Delta& delta);
  void end();  // completes the last line; call once

  const std::string& answer() const { return answer_; }  // collected
  const std::string& reasoning() const { return reasoning_; }
  bool is_reasoning() const { return has_reasoning_ && !has_answer_; }  // the output ended inside the reasoning
  const Status& written() const { return written_; }                    // the first write error

 private:
  void show_reasoning(std::string_view text);
  void show_answer(std::string_view text);
  void end_reasoning();
  void write(std::string_view text);
  void write_wrapped(std::string_view text);

  AnswerViewOptions options_;
  WordWrap wrap_;
  std::string answer_, reasoning_;
  bool has_answer_ = false, has_reasoning_ = false, is_line_open_ = false;
  Status written_ = ok_status();
};

}  // namespace zinc
