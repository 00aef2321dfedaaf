// A text file as windows of tokens, for commands that evaluate it.
#pragma once

#include <string>

#include "engine/perplexity.h"

namespace zinc {

struct WindowOptions {
  std::string path;             // of the text
  int window = 512;             // tokens
  int max_windows = 0;          // 0: all
  bool parses_special = false;  // "<|im_start|>" in the text is the control token
};
// Fails if the text is shorter than one window, or if the model cannot embed one of its tokens.
Result<WindowedText> read_windows(const WindowOptions& options, const ModelInstance& model);

}  // namespace zinc
