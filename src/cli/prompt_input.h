// The model and the prompt of `zinc run`, from its arguments, a file and standard input. A text from a file or a pipe
// and a question are joined: the text, an empty line, then the question.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace zinc {

struct PromptArguments {
  std::vector<std::string> words = {};     // [MODEL] [PROMPT], as typed
  std::string model = {};                  // -m
  std::optional<std::string> prompt = {};  // -p
  std::string file = {};                   // -f
  bool no_stdin = false;
  bool raw = false;  // the text is used as is: the last newline of the input stays
};

struct PromptInput {
  std::string model;                // as typed; empty: the default model
  std::optional<std::string> text;  // nullopt: no prompt was given, and standard input is a terminal
};

// Wrong usage: too many words, an empty prompt.
Status check_arguments(const PromptArguments& arguments);

// A single word is the model if it names one, else the prompt; a word that looks like the name of an unknown model is
// an error. Reads the file, or standard input if it is not a terminal; then an empty prompt is an error.
Result<PromptInput> read_prompt(const PromptArguments& arguments);

// The model that the arguments name, as typed; empty: the default model. Reads nothing.
std::string named_model(const PromptArguments& arguments);

// The text, an empty line and the question; only one of them if the other is empty.
std::string join_prompt(std::string text, const std::string& question);

}  // namespace zinc
